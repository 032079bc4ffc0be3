//! One infer request with its tensors: what one worker owns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use openvino::{ElementType, InferRequest, InferenceError, Node, Shape, Tensor};

use super::one_line;
use crate::batch::{Batch, Bucket};
use crate::clock::Clock;
use crate::engine::{BatchOutput, EngineError, Floats, Session, StageTimes};
use crate::package::manifest::{self, Manifest, TensorType};

/// Names and types of the graph's tensors.
#[derive(Debug, Clone)]
pub(super) struct Tensors {
    input_ids: manifest::GraphTensor,
    attention_mask: manifest::GraphTensor,
    dense: manifest::GraphTensor,
    token_weights: Option<manifest::GraphTensor>,
    pad_token_id: u32,
}

impl Tensors {
    pub(super) fn of(manifest: &Manifest) -> Self {
        Self {
            input_ids: manifest.inputs.input_ids.clone(),
            attention_mask: manifest.inputs.attention_mask.clone(),
            dense: manifest.outputs.dense.clone(),
            token_weights: manifest.outputs.token_weights.clone(),
            pad_token_id: manifest.pad_token_id,
        }
    }
}

/// A port of the graph as OpenVINO tells it.
pub(super) struct Port {
    pub name: String,
    /// `None` for a type that no engine of ours can use.
    pub(crate) element: Option<TensorType>,
    pub(crate) element_name: String,
    /// `None` when it is dynamic.
    pub(crate) rank: Option<i64>,
}

/// Reads what the check of names, types and ranks needs.
pub(super) fn port(node: &Node) -> Result<Port, String> {
    let failed = |error: InferenceError| format!("a tensor cannot be read ({})", one_line(&error));
    let element_type = node.get_element_type().map_err(failed)?;
    let shape = node.get_partial_shape().map_err(failed)?;
    let rank = shape.get_rank();
    Ok(Port {
        name: node.get_name().map_err(failed)?,
        element: [TensorType::Int32, TensorType::Int64, TensorType::Float32, TensorType::Float16]
            .into_iter()
            .find(|&element| ElementType::from(element) == element_type),
        element_name: element_type.to_string(),
        rank: (rank.get_min() == rank.get_max()).then(|| rank.get_min()),
    })
}

/// The two input tensors of one bucket.
struct BucketInputs {
    ids: Tensor,
    mask: Tensor,
}

/// The output tensors of a run.
struct OutputTensors {
    dense: Tensor,
    token_weights: Option<Tensor>,
}

/// One worker's request. Input tensors are made once for each bucket and kept: setting another
/// shape on a tensor allocates, and the crate's `set_shape` hands out a second owner of the same
/// tensor.
pub(super) struct OpenVinoSession {
    request: InferRequest,
    tensors: Tensors,
    hidden_size: usize,
    clock: Arc<dyn Clock>,
    inputs: HashMap<Bucket, BucketInputs>,
    /// Of the last run.
    outputs: Option<OutputTensors>,
    /// int32 values on their way into int64 tensors: ids, then mask.
    narrow: [Vec<i32>; 2],
    /// The same model in f32.
    rescue: Option<Box<OpenVinoSession>>,
}

impl OpenVinoSession {
    pub(super) fn new(
        request: InferRequest,
        tensors: Tensors,
        hidden_size: usize,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            request,
            tensors,
            hidden_size,
            clock,
            inputs: HashMap::new(),
            outputs: None,
            narrow: [Vec::new(), Vec::new()],
            rescue: None,
        }
    }

    /// Has a session for rows that are not finite.
    pub(super) fn rescue_with(&mut self, session: Self) {
        self.rescue = Some(Box::new(session));
    }

    fn fill(&mut self, batch: &Batch) -> Result<(), EngineError> {
        let bucket = batch.bucket();
        if !self.inputs.contains_key(&bucket) {
            let inputs = BucketInputs {
                ids: tensor(bucket, self.tensors.input_ids.element)?,
                mask: tensor(bucket, self.tensors.attention_mask.element)?,
            };
            self.inputs.insert(bucket, inputs);
        }
        let Some(inputs) = self.inputs.get_mut(&bucket) else {
            return Err(EngineError::SessionLost("the bucket's tensors are gone".to_owned()));
        };
        let [ids, mask] = &mut self.narrow;
        ids.resize(bucket.tokens(), 0);
        mask.resize(bucket.tokens(), 0);
        batch.fill(self.tensors.pad_token_id, ids, mask);
        write(&mut inputs.ids, self.tensors.input_ids.element, ids)?;
        write(&mut inputs.mask, self.tensors.attention_mask.element, mask)?;
        self.request.set_tensor(&self.tensors.input_ids.name, &inputs.ids).map_err(failed)?;
        self.request.set_tensor(&self.tensors.attention_mask.name, &inputs.mask).map_err(failed)
    }

    /// The rows where the request has left them.
    fn output(&mut self, bucket: Bucket) -> Result<BatchOutput<'_>, EngineError> {
        let Self { request, tensors, outputs, .. } = self;
        let read = |port: &manifest::GraphTensor| request.get_tensor(&port.name).map_err(failed);
        let outputs = outputs.insert(OutputTensors {
            dense: read(&tensors.dense)?,
            token_weights: tensors.token_weights.as_ref().map(read).transpose()?,
        });
        let dense = floats(&outputs.dense, &tensors.dense, bucket.rows * self.hidden_size)?;
        let weights = tensors.token_weights.as_ref().zip(outputs.token_weights.as_ref());
        let weights = weights.map(|(port, tensor)| floats(tensor, port, bucket.tokens()));
        Ok(BatchOutput::new(bucket, self.hidden_size, dense, weights.transpose()?))
    }
}

impl Session for OpenVinoSession {
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
        let start = self.clock.now();
        self.fill(batch)?;
        let filled = self.clock.now();
        self.request.infer().map_err(failed)?;
        let times = StageTimes {
            copy_in: filled.since(start),
            compute: self.clock.now().since(filled),
            copy_out: Duration::ZERO,
        };
        Ok(BatchOutput { times, ..self.output(batch.bucket())? })
    }

    fn rescue(&mut self, batch: &Batch) -> Option<Result<BatchOutput<'_>, EngineError>> {
        self.rescue.as_mut().map(|session| session.run(batch))
    }
}

fn tensor(bucket: Bucket, element: TensorType) -> Result<Tensor, EngineError> {
    let dimensions = [bucket.rows, bucket.length].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let shape = Shape::new(&dimensions).map_err(failed)?;
    Tensor::new(element.into(), &shape)
        .map_err(|error| EngineError::OutOfMemory(format!("input tensor: {}", one_line(&error))))
}

fn write(tensor: &mut Tensor, element: TensorType, values: &[i32]) -> Result<(), EngineError> {
    if element == TensorType::Int64 {
        let wide = tensor.get_data_mut::<i64>().map_err(failed)?;
        for (slot, &value) in wide.iter_mut().zip(values) {
            *slot = i64::from(value);
        }
    } else {
        tensor.get_data_mut::<i32>().map_err(failed)?.copy_from_slice(values);
    }
    Ok(())
}

/// The numbers of one output, which must be so many.
fn floats<'a>(
    tensor: &'a Tensor,
    port: &manifest::GraphTensor,
    due: usize,
) -> Result<Floats<'a>, EngineError> {
    let size = tensor.get_size().map_err(failed)?;
    if size != due {
        return Err(EngineError::BadPackage(format!(
            "output '{}' has {size} floats where {due} were due",
            port.name
        )));
    }
    Ok(if port.element == TensorType::Float16 {
        Floats::Half(tensor.get_data().map_err(failed)?)
    } else {
        Floats::Single(tensor.get_data().map_err(failed)?)
    })
}

/// A run that failed may succeed with other input; OpenVINO's requests stay usable.
fn failed(error: InferenceError) -> EngineError {
    EngineError::Transient(one_line(&error))
}
