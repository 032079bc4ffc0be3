//! One infer request with its tensors: what one worker owns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use openvino::{ElementType, InferRequest, InferenceError, Node, Shape, Tensor};

use super::one_line;
use crate::engine::{BatchOutput, EngineError, Floats, GraphFacts, Session, SpanWords};
use crate::metrics::StageTimes;
use clock::Clock;
use model::package::manifest::{FloatType, Outputs};
use scheduling::batch::{Batch, Bucket, GraphInputs};

/// Tensors of longer rows are made anew for each run: they take megabytes, and making them is quick
/// beside the run.
const KEPT_LENGTH: usize = 512;

/// A port of the graph as OpenVINO tells it.
pub(super) struct Port {
    pub name: String,
    pub(crate) element: ElementType,
    /// `None` if the rank is dynamic.
    pub(crate) rank: Option<i64>,
}

pub(super) fn port(node: &Node) -> Result<Port, String> {
    let failed = |error: InferenceError| format!("a tensor cannot be read ({})", one_line(&error));
    let element = node.get_element_type().map_err(failed)?;
    let shape = node.get_partial_shape().map_err(failed)?;
    let rank = shape.get_rank();
    Ok(Port {
        name: node.get_name().map_err(failed)?,
        element,
        rank: (rank.get_min() == rank.get_max()).then(|| rank.get_min()),
    })
}

/// The graph's inputs, in the order of [`BucketInputs`].
const INPUTS: [&str; 4] = ["input_ids", "positions", "segments", "span_weights"];

/// The input tensors of one bucket.
type BucketInputs = [Tensor; 4];

fn inputs_of(bucket: Bucket) -> Result<BucketInputs, EngineError> {
    let Bucket { rows, length } = bucket;
    let integers = || tensor(ElementType::I32, &[rows, length]);
    let span_weights = tensor(ElementType::F32, &[rows, bucket.spans(), length])?;
    Ok([integers()?, integers()?, integers()?, span_weights])
}

/// What OpenVINO says of a run for which memory was short; it has no kind of error for that.
const SHORT_OF_MEMORY: [&str; 3] = ["bytes of memory", "can't alloc", "bad_alloc"];

/// Fills the start of an output until a run overwrites it, so that it is a NaN that no arithmetic
/// gives. With one thread OpenVINO says nothing of memory that was short, and leaves the numbers of
/// an earlier text.
const UNWRITTEN: u8 = 0xff;

struct OutputTensors {
    dense: Tensor,
    token_weights: Option<Tensor>,
    token_vectors: Option<Tensor>,
    words: Option<(Tensor, Tensor)>,
}

/// One worker's request. Input tensors are made once for each bucket and kept. The crate's
/// `set_shape` would allocate, and hands out a second owner of the tensor.
pub(super) struct OpenVinoSession {
    request: InferRequest,
    facts: GraphFacts,
    output_types: Outputs,
    clock: Arc<dyn Clock>,
    inputs: HashMap<Bucket, BucketInputs>,
    /// Of the last run.
    outputs: Option<OutputTensors>,
    /// Runs rows with NaN or infinity again, in f32.
    pub(super) rescue: Option<Box<OpenVinoSession>>,
}

impl OpenVinoSession {
    pub(super) fn new(
        request: InferRequest,
        facts: GraphFacts,
        output_types: Outputs,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (inputs, outputs) = (HashMap::new(), None);
        Self { request, facts, output_types, clock, inputs, outputs, rescue: None }
    }

    fn fill(&mut self, batch: &Batch) -> Result<(), EngineError> {
        let bucket = batch.bucket();
        if !self.inputs.contains_key(&bucket) {
            self.inputs.retain(|kept, _| kept.length <= KEPT_LENGTH);
            self.inputs.insert(bucket, inputs_of(bucket)?);
        }
        let Some(inputs) = self.inputs.get_mut(&bucket) else {
            return Err(EngineError::SessionLost("the bucket's tensors are gone".to_owned()));
        };
        let GraphFacts { pooling, pad_token_id, .. } = self.facts;
        let [input_ids, positions, segments, span_weights] = &mut *inputs;
        let slices = GraphInputs {
            input_ids: input_ids.get_data_mut().map_err(failed)?,
            positions: positions.get_data_mut().map_err(failed)?,
            segments: segments.get_data_mut().map_err(failed)?,
            span_weights: span_weights.get_data_mut().map_err(failed)?,
        };
        batch.fill(pooling, pad_token_id, slices);
        for (name, tensor) in INPUTS.into_iter().zip(&*inputs) {
            self.request.set_tensor(name, tensor).map_err(failed)?;
        }
        Ok(())
    }

    /// The rows, in the memory where the request left them.
    fn output(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
        let Self { request, facts, output_types, outputs, .. } = self;
        let bucket = batch.bucket();
        let read = |name: &str| request.get_tensor(name).map_err(failed);
        let weights_type = output_types.token_weights;
        let vectors_type = output_types.token_vectors.zip(facts.token_vector_size);
        let vectors_type = vectors_type.filter(|_| batch.wants_token_vectors());
        let words_type = output_types.word_weights.zip(facts.words);
        let mut dense = read("dense")?;
        if start_of(&mut dense)?.is_some_and(|start| start.iter().all(|&byte| byte == UNWRITTEN)) {
            return Err(broken("no error was reported, and nothing was written"));
        }
        let outputs = outputs.insert(OutputTensors {
            dense,
            token_weights: weights_type.map(|_| read("token_weights")).transpose()?,
            token_vectors: vectors_type.map(|_| read("token_vectors")).transpose()?,
            words: match words_type {
                Some(_) => Some((read("words")?, read("word_weights")?)),
                None => None,
            },
        });
        let due = bucket.rows * bucket.spans() * facts.hidden_size;
        let dense = floats(&outputs.dense, "dense", output_types.dense, due)?;
        let weights = weights_type.zip(outputs.token_weights.as_ref());
        let weights = weights
            .map(|(element, tensor)| floats(tensor, "token_weights", element, bucket.tokens()));
        let token_weights = weights.transpose()?;
        let words = match words_type.zip(outputs.words.as_ref()) {
            Some(((element, kept), (ids, weights))) => {
                let due = bucket.rows * bucket.spans() * kept;
                let weights = floats(weights, "word_weights", element, due)?;
                check_count(ids, "words", due)?;
                Some(SpanWords { kept, ids: ids.get_data().map_err(failed)?, weights })
            }
            None => None,
        };
        let vectors = vectors_type.zip(outputs.token_vectors.as_ref());
        let vectors = vectors.map(|((element, size), tensor)| {
            let vectors = floats(tensor, "token_vectors", element, bucket.tokens() * size)?;
            Ok((size, vectors))
        });
        let (token_vectors, hidden_size) = (vectors.transpose()?, facts.hidden_size);
        let times = StageTimes::default();
        Ok(BatchOutput { bucket, hidden_size, dense, token_weights, token_vectors, words, times })
    }
}

impl Session for OpenVinoSession {
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
        let start = self.clock.now();
        self.fill(batch)?;
        if let Some(OutputTensors { dense, .. }) = &mut self.outputs {
            start_of(dense)?.into_iter().for_each(|start| start.fill(UNWRITTEN));
        }
        let filled = self.clock.now();
        self.request.infer().map_err(|error| {
            let text = one_line(&error);
            match SHORT_OF_MEMORY.iter().any(|words| text.contains(words)) {
                true => broken(&text),
                false => failed(error),
            }
        })?;
        let times = StageTimes {
            copy_in: filled.since(start),
            compute: self.clock.now().since(filled),
            copy_out: Duration::ZERO,
        };
        Ok(BatchOutput { times, ..self.output(batch)? })
    }

    fn rescue(&mut self, batch: &Batch) -> Option<Result<BatchOutput<'_>, EngineError>> {
        self.rescue.as_mut().map(|session| session.run(batch))
    }
}

fn tensor(element: ElementType, sizes: &[usize]) -> Result<Tensor, EngineError> {
    let sizes: Vec<i64> = sizes.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)).collect();
    let shape = Shape::new(&sizes).map_err(failed)?;
    Tensor::new(element, &shape)
        .map_err(|error| EngineError::OutOfMemory(format!("input tensor: {}", one_line(&error))))
}

/// The numbers of one output; an error if their count is not `due`.
fn floats<'a>(
    tensor: &'a Tensor,
    name: &str,
    element: FloatType,
    due: usize,
) -> Result<Floats<'a>, EngineError> {
    check_count(tensor, name, due)?;
    Ok(match element {
        FloatType::Float16 => Floats::Half(tensor.get_data().map_err(failed)?),
        FloatType::Float32 => Floats::Single(tensor.get_data().map_err(failed)?),
    })
}

/// An error if the count of the output's numbers is not `due`.
fn check_count(tensor: &Tensor, name: &str, due: usize) -> Result<(), EngineError> {
    let size = tensor.get_size().map_err(failed)?;
    if size == due {
        return Ok(());
    }
    let reason = format!("output '{name}' has {size} numbers where {due} were due");
    Err(EngineError::BadPackage(reason))
}

/// The first number or the first two; none where there are fewer, and maybe no memory.
fn start_of(output: &mut Tensor) -> Result<Option<&mut [u8; 4]>, EngineError> {
    match output.get_byte_size().map_err(failed)? {
        0..4 => Ok(None),
        _ => Ok(output.get_raw_data_mut().map_err(failed)?.first_chunk_mut()),
    }
}

/// A graph whose memory was short once has nodes of different shapes from then on: it gives errors,
/// ends the process, or does nothing.
fn broken(why: &str) -> EngineError {
    EngineError::ProcessPoisoned(format!("OpenVINO lacked memory for a run: {why}"))
}

/// A failed run says nothing about other input, and OpenVINO's requests stay usable after it.
fn failed(error: InferenceError) -> EngineError {
    EngineError::Transient(one_line(&error))
}
