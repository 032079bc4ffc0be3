//! The CPU engine: OpenVINO's libraries, opened at run time.
//!
//! One compiled model has a stream for each worker and holds the weights once. A stream prepares
//! each shape at its first run, which takes 5 ms of a run of 9 to 50 ms on one core. A single
//! stream runs in the worker's own thread. Of several streams OpenVINO takes a free one, so a
//! worker may get any of them. All workers warm up at the same time, so that each stream has met
//! nearly all shapes.

use std::path::Path;
use std::sync::Arc;

use openvino::{
    CompiledModel, Core, DeviceType, ElementType, InferenceError, Model, PropertyKey,
    RwPropertyKey, SetupError,
};
use parking_lot::Mutex;

use crate::engine::{
    Engine, EngineError, EngineInfo, EngineKind, GraphFacts, Session, Split, run_canary,
};
use clock::Clock;
use model::package::ModelPackage;
use model::package::canary::Comparison;
use model::package::manifest::{FloatType, Manifest, Outputs};
use scheduling::batch::Bucket;
use scheduling::batch::plan::ROW_TOKENS;
use settings::{PrecisionChoice, RescueChoice};

mod mapped;
mod session;

use session::OpenVinoSession;

/// A graph that was read and checked. It is compiled once for each way of running it that is tried.
pub struct OpenVinoModel<'a> {
    core: Core,
    model: Model,
    package: &'a ModelPackage,
    clock: Arc<dyn Clock>,
    device: String,
    /// Precisions to try, in this order. Only one, once it is known to agree with the canary.
    precisions: Vec<PrecisionChoice>,
    rescue: RescueChoice,
}

/// The model, compiled once for all sessions.
pub struct OpenVinoEngine {
    info: EngineInfo,
    facts: GraphFacts,
    output_types: Outputs,
    clock: Arc<dyn Clock>,
    /// The C API allows one caller at a time to create requests.
    compiled: Mutex<CompiledModel>,
    /// The model in f32, if `compiled` is in half precision and `--rescue-precision` asks for f32.
    rescue: Option<Mutex<CompiledModel>>,
}

/// The precision hint for all operators that the graph leaves open. Beside 8 bits it is f32: half
/// precision was no faster there and is less exact.
const fn hint(precision: PrecisionChoice) -> &'static str {
    match precision {
        PrecisionChoice::Int8 => PrecisionChoice::F32.name(),
        _ => precision.name(),
    }
}

/// The word in the device's list of capabilities; `None` if no processor has the precision.
const fn capability(precision: PrecisionChoice) -> Option<&'static str> {
    match precision {
        PrecisionChoice::F32 => Some("FP32"),
        PrecisionChoice::Bf16 => Some("BF16"),
        PrecisionChoice::F16 => Some("FP16"),
        PrecisionChoice::Int8 => Some("INT8"),
        PrecisionChoice::Auto | PrecisionChoice::Fp8 => None,
    }
}

impl<'a> OpenVinoModel<'a> {
    /// Opens the libraries, reads the graph and checks its tensors against the manifest.
    ///
    /// `library_dir` is the folder of `libopenvino_c.so`; `None` searches the system.
    ///
    /// # Errors
    /// `BadPackage` if graph and manifest do not fit, or if the processor lacks the requested
    /// precision; `NotAvailable` if OpenVINO itself cannot be used.
    pub fn read(
        package: &'a ModelPackage,
        library_dir: Option<&Path>,
        precision: PrecisionChoice,
        rescue: RescueChoice,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, EngineError> {
        let mut core = open_library(library_dir)?;
        let graph = match precision {
            // Also of a package whose plans are in 8 bits.
            PrecisionChoice::F32 => package.model_path(),
            _ => package.graph_path(),
        };
        let model = read_model(&mut core, package, &graph)?;
        let device = device_property(&core, PropertyKey::DeviceFullName)?.trim().to_owned();
        let capabilities = device_property(&core, PropertyKey::DeviceCapabilities)?;
        let precisions = candidates(precision, &capabilities)?;
        Ok(Self { core, model, package, clock, device, precisions, rescue })
    }

    /// Compiles the graph and runs the canary, in one precision after the other until the canary
    /// agrees. Takes seconds.
    ///
    /// # Errors
    /// `BadPackage` if the canary is off in all precisions; `NotAvailable` if OpenVINO cannot
    /// compile the graph.
    pub fn compile(&mut self, split: Split) -> Result<OpenVinoEngine, EngineError> {
        let manifest = self.package.manifest();
        let mut refused = String::new();
        for precision in self.precisions.clone() {
            let compiled = compile(&mut self.core, &self.model, precision, split)?;
            let mut engine = OpenVinoEngine {
                info: self.info(precision, split),
                facts: GraphFacts::of(manifest),
                output_types: manifest.outputs,
                clock: Arc::clone(&self.clock),
                compiled: Mutex::new(compiled),
                rescue: None,
            };
            let comparison = engine.run_canary(manifest)?;
            if comparison.passed() {
                tracing::info!(
                    precision = precision.name(),
                    dense_cosine = comparison.dense_cosine,
                    sparse_error = comparison.sparse_error,
                    "the canary agrees with the golden numbers"
                );
                if self.rescue == RescueChoice::F32 && precision != PrecisionChoice::F32 {
                    engine.rescue = Some(self.compile_rescue(precision, split)?);
                }
                self.precisions = vec![precision];
                return Ok(engine);
            }
            refused = format!(
                "in {} the model does not give the manifest's golden numbers: {comparison}; the \
                 graph may belong to another vocabulary or head",
                precision.name()
            );
            tracing::warn!("{refused}");
        }
        Err(EngineError::BadPackage(refused))
    }

    /// Compiles the rescue model at the start, since no request may wait for that. Rows to rescue
    /// are rare, so one stream is enough and its shapes are not warmed up.
    fn compile_rescue(
        &mut self,
        precision: PrecisionChoice,
        split: Split,
    ) -> Result<Mutex<CompiledModel>, EngineError> {
        let split = Split { workers: 1, ..split };
        let own;
        let model = if precision == PrecisionChoice::Int8 {
            // The graph in 8 bits ignores the hint, so the f32 graph is needed.
            own = read_model(&mut self.core, self.package, &self.package.model_path())?;
            &own
        } else {
            &self.model
        };
        let compiled = compile(&mut self.core, model, PrecisionChoice::F32, split)?;
        tracing::info!("rows that are not finite will be run again in f32");
        Ok(Mutex::new(compiled))
    }

    fn info(&self, precision: PrecisionChoice, split: Split) -> EngineInfo {
        EngineInfo {
            kind: EngineKind::OpenVino,
            version: openvino::version().build_number,
            device: self.device.clone(),
            precision: precision.name().to_owned(),
            threads_per_session: split.threads,
            hidden_size: self.package.manifest().hidden_size,
            profiles: Vec::new(),
        }
    }
}

/// Compiled models have their own copies of the layers' numbers, so the package's are in memory
/// twice until the last model is compiled.
impl Drop for OpenVinoModel<'_> {
    fn drop(&mut self) {
        if let Err(error) = mapped::give_back(self.package.directory()) {
            tracing::debug!("the package's numbers stay in memory: {error}");
        }
    }
}

impl OpenVinoEngine {
    /// Runs the canary among other texts in two shared rows.
    fn run_canary(&self, manifest: &Manifest) -> Result<Comparison, EngineError> {
        let length = manifest.canary.token_ids.len().max(ROW_TOKENS).min(manifest.max_input_tokens);
        run_canary(&mut self.open()?, manifest, Bucket { rows: 2, length })
    }

    fn open(&self) -> Result<OpenVinoSession, EngineError> {
        let mut session = self.open_on(&self.compiled)?;
        if let Some(compiled) = &self.rescue {
            session.rescue = Some(Box::new(self.open_on(compiled)?));
        }
        Ok(session)
    }

    fn open_on(&self, compiled: &Mutex<CompiledModel>) -> Result<OpenVinoSession, EngineError> {
        let request = compiled.lock().create_infer_request().map_err(lost)?;
        let clock = Arc::clone(&self.clock);
        Ok(OpenVinoSession::new(request, self.facts, self.output_types, clock))
    }
}

impl Engine for OpenVinoEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn compiles_shapes(&self) -> bool {
        false
    }

    fn open_session(&self, _: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
        Ok(Box::new(self.open()?))
    }
}

fn open_library(directory: Option<&Path>) -> Result<Core, EngineError> {
    let failed = |reason: String| {
        EngineError::NotAvailable(format!(
            "cannot open OpenVINO's library (libopenvino_c.so, 2025.1 or later): {reason}; name \
             its folder with --openvino-library-dir or DUOVEC_OPENVINO_LIBRARY_DIR, or start a \
             server with scripts/serve.sh"
        ))
    };
    if let Some(directory) = directory {
        let library = directory.join("libopenvino_c.so");
        if !library.exists() {
            return Err(failed(format!("{} does not exist", library.display())));
        }
        openvino_sys::library::load_from(library).map_err(failed)?;
    }
    Core::new().map_err(|error| match error {
        SetupError::Loading(_) => failed("it is in none of the usual places".to_owned()),
        SetupError::Inference(error) => failed(one_line(&error)),
    })
}

fn read_model(core: &mut Core, package: &ModelPackage, path: &Path) -> Result<Model, EngineError> {
    let bad = |reason: String| {
        EngineError::BadPackage(format!("cannot use {}: {reason}", path.display()))
    };
    let text = path.to_str().ok_or_else(|| bad("its path is not UTF-8".to_owned()))?;
    // The second path is empty, since OpenVINO finds external data beside the graph.
    let model = core.read_model_from_file(text, "").map_err(|error| {
        bad(format!("it is not a graph OpenVINO can read ({})", one_line(&error)))
    })?;
    check_tensors(&model, package.manifest()).map_err(bad)?;
    Ok(model)
}

/// Checks that the graph has exactly the tensors of the contract, with their types and ranks.
fn check_tensors(model: &Model, manifest: &Manifest) -> Result<(), String> {
    let failed =
        |error: InferenceError| format!("its tensors cannot be listed ({})", one_line(&error));
    let mut inputs = Vec::new();
    for index in 0..model.get_inputs_len().map_err(failed)? {
        inputs.push(session::port(&model.get_input_by_index(index).map_err(failed)?)?);
    }
    let mut outputs = Vec::new();
    for index in 0..model.get_outputs_len().map_err(failed)? {
        outputs.push(session::port(&model.get_output_by_index(index).map_err(failed)?)?);
    }
    let integers = |name| (name, ElementType::I32, 2);
    let [ids, positions, segments] = ["input_ids", "positions", "segments"].map(integers);
    let wanted_inputs = [ids, positions, segments, ("span_weights", ElementType::F32, 3)];
    let dense = ("dense", element_type(manifest.outputs.dense), 3);
    let weights = manifest.outputs.token_weights.map(|of| ("token_weights", element_type(of), 2));
    let vectors = manifest.outputs.token_vectors.map(|of| ("token_vectors", element_type(of), 3));
    let words = manifest
        .outputs
        .word_weights
        .map(|of| [("words", ElementType::I32, 3), ("word_weights", element_type(of), 3)]);
    let words = words.into_iter().flatten();
    let wanted: Vec<_> = [dense].into_iter().chain(weights).chain(vectors).chain(words).collect();
    check_ports("input", &wanted_inputs, &inputs)?;
    check_ports("output", &wanted, &outputs)
}

/// Checks that the inputs, or the outputs, are exactly `wanted`, by name, type and rank.
fn check_ports(
    kind: &str,
    wanted: &[(&str, ElementType, i64)],
    found: &[session::Port],
) -> Result<(), String> {
    for &(name, element, rank) in wanted {
        let port = found.iter().find(|port| port.name == name).ok_or_else(|| {
            let names: Vec<&str> = found.iter().map(|port| port.name.as_str()).collect();
            format!("it has no {kind} '{name}', only {}", names.join(", "))
        })?;
        if port.element != element || port.rank != Some(rank) {
            return Err(format!(
                "{kind} '{name}' is {} of rank {}, it must be {element} of rank {rank}",
                port.element,
                port.rank.map_or_else(|| "unknown".to_owned(), |rank| rank.to_string()),
            ));
        }
    }
    if found.len() != wanted.len() {
        return Err(format!("it has {} {kind}s in place of {}", found.len(), wanted.len()));
    }
    Ok(())
}

fn device_property(core: &Core, key: PropertyKey) -> Result<String, EngineError> {
    core.get_property(&DeviceType::CPU, &key).map_err(|error| {
        EngineError::NotAvailable(format!(
            "OpenVINO's CPU plugin does not answer: {}",
            one_line(&error)
        ))
    })
}

/// Precisions to try, in order. bf16 is two to four times as fast as f32 where a processor has it,
/// and slower on others. f16 comes second: a Xeon of the fifth generation, which has both, took
/// four times as long in f16 as in bf16, since its matrix unit (AMX) knows bf16 only.
fn candidates(
    choice: PrecisionChoice,
    capabilities: &str,
) -> Result<Vec<PrecisionChoice>, EngineError> {
    let has = |precision: &PrecisionChoice| {
        capabilities.split_whitespace().any(|word| Some(word) == capability(*precision))
    };
    match choice {
        PrecisionChoice::Fp8 => Err(EngineError::NotAvailable(
            "--precision fp8 is for GPUs: name --engine tensorrt or tensorrt-rtx, or --precision \
             int8"
                .to_owned(),
        )),
        PrecisionChoice::Auto => {
            let half = [PrecisionChoice::Bf16, PrecisionChoice::F16].into_iter().filter(has);
            Ok(half.chain([PrecisionChoice::F32]).collect())
        }
        named if has(&named) => Ok(vec![named]),
        named => {
            let name = named.name();
            Err(EngineError::BadPackage(format!(
                "--precision {name}: this processor has no {name} arithmetic (it has \
                 {capabilities})"
            )))
        }
    }
}

fn compile(
    core: &mut Core,
    model: &Model,
    precision: PrecisionChoice,
    split: Split,
) -> Result<CompiledModel, EngineError> {
    let failed = |error: InferenceError| {
        EngineError::NotAvailable(format!(
            "OpenVINO cannot compile the model: {}",
            one_line(&error)
        ))
    };
    let threads = split.workers * split.threads;
    let properties = [
        (RwPropertyKey::NumStreams, split.workers.to_string()),
        (RwPropertyKey::InferenceNumThreads, threads.to_string()),
        (RwPropertyKey::HintInferencePrecision, hint(precision).to_owned()),
        // The HTTP side shares the cores; a pinned thread could not move away from it.
        (RwPropertyKey::HintEnableCpuPinning, "NO".to_owned()),
    ];
    for (key, value) in &properties {
        core.set_property(&DeviceType::CPU, key, value).map_err(failed)?;
    }
    core.compile_model(model, DeviceType::CPU).map_err(failed)
}

fn lost(error: InferenceError) -> EngineError {
    EngineError::SessionLost(one_line(&error))
}

/// Makes one line of OpenVINO's messages, which span several lines with places in its source.
fn one_line(error: &InferenceError) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

const fn element_type(element: FloatType) -> ElementType {
    match element {
        FloatType::Float32 => ElementType::F32,
        FloatType::Float16 => ElementType::F16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_8_bits_is_in_f32() {
        assert_eq!(hint(PrecisionChoice::Int8), "f32");
        assert_eq!(hint(PrecisionChoice::Bf16), "bf16");
    }

    #[test]
    fn auto_prefers_bf16_then_f16_and_ends_with_f32() {
        let all = candidates(PrecisionChoice::Auto, "FP32 INT8 BIN FP16 BF16");
        assert_eq!(
            all,
            Ok(vec![PrecisionChoice::Bf16, PrecisionChoice::F16, PrecisionChoice::F32])
        );
        let plain = candidates(PrecisionChoice::Auto, "FP32 INT8 BIN EXPORT_IMPORT");
        assert_eq!(plain, Ok(vec![PrecisionChoice::F32]));
    }

    #[test]
    fn a_named_precision_never_falls_back() {
        assert_eq!(candidates(PrecisionChoice::F32, "FP32"), Ok(vec![PrecisionChoice::F32]));
        assert_eq!(candidates(PrecisionChoice::Int8, "FP32 INT8"), Ok(vec![PrecisionChoice::Int8]));
        let error = candidates(PrecisionChoice::Bf16, "FP32 INT8").expect_err("no bf16 there");
        assert!(error.to_string().contains("no bf16 arithmetic"), "{error}");
        let error = candidates(PrecisionChoice::Fp8, "FP32 INT8").expect_err("it is for GPUs");
        assert!(error.to_string().contains("is for GPUs"), "{error}");
    }
}
