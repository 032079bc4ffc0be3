//! `duovec build-engine`: a TensorRT plan from a package's ONNX graph.

use clap::Command;

use super::{package_argument, switch, value};

/// What can be typed; the same with and without the features, so that the help is complete.
pub(super) fn command() -> Command {
    Command::new("build-engine")
        .about("Builds a TensorRT plan from the package's ONNX graph and adds it to the package")
        .arg(switch(
            "inspect",
            "builds nothing: prints the layers of the plan that runs on the GPU, as JSON in \
             TensorRT's own form",
        ))
        .arg(
            switch(
                "layer-times",
                "builds nothing: prints what each layer of the plan that runs on the GPU takes in \
                 the usual shape of each profile, as JSON",
            )
            .conflicts_with("inspect"),
        )
        .arg(package_argument().required_unless_present("package").help("directory of the package"))
        .arg(
            value("flavour", "FLAVOUR", "tensorrt or tensorrt-rtx [default: the one that opens]")
                .value_parser(["tensorrt", "tensorrt-rtx"]),
        )
        .arg(value(
            "profiles",
            "PROFILES",
            "NAME=ROWSxLENGTH:ROWSxLENGTH:ROWSxLENGTH, smallest, usual and largest shape, \
             separated by commas [default: some for usual traffic, from the model's length]",
        ))
        .arg(value(
            "compute-capability",
            "LIST",
            "tensorrt-rtx: GPUs to build for, such as 8.6,12.0 [default: 8.0 and later]",
        ))
        .arg(switch("hardware-compatibility", "tensorrt: a plan for later GPU generations too"))
        .arg(
            switch("same-compute-capability", "tensorrt: a plan for all GPUs of this generation")
                .conflicts_with("hardware-compatibility"),
        )
        .arg(switch("version-compatible", "tensorrt: a plan for later versions too"))
        .arg(
            value("device", "N", "CUDA's number of the GPU to build and try the plan on")
                .default_value("0")
                .value_parser(clap::value_parser!(usize)),
        )
        .arg(
            value("optimization-level", "N", "tensorrt: from 0, quick, to 5 [default: TensorRT's]")
                .value_parser(clap::value_parser!(i32).range(0..=5)),
        )
        .arg(
            value("workspace-mib", "N", "tensorrt: memory that a kernel may take [default: all]")
                .value_parser(clap::value_parser!(i64).range(1..=1 << 20)),
        )
}

#[cfg(not(any(feature = "tensorrt", feature = "tensorrt-rtx")))]
pub(super) fn build_engine(_: &settings::Config, _: &clap::ArgMatches) -> anyhow::Result<()> {
    anyhow::bail!(
        "this program was built without TensorRT: run scripts/fetch_tensorrt.sh, then cargo build \
         --release --features tensorrt-rtx (or tensorrt)"
    )
}

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
pub(super) use with_tensorrt::build_engine;

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod with_tensorrt {
    use std::io::{self, Write};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

    use anyhow::{Context, anyhow, bail};
    use clap::ArgMatches;
    use indicatif::ProgressBar;
    use serde_json::{Value, json};
    use tokio::runtime::Builder;

    use crate::cli::progress_bar;
    use crate::engine::tensorrt::build::{self, BuildOptions, BuiltPlan};
    use crate::engine::tensorrt::ffi::{LayerTime, Library, Observer};
    use crate::engine::tensorrt::plan::parse_profiles;
    use crate::engine::tensorrt::{TensorRtEngine, TensorRtOptions};
    use crate::shutdown::{Signals, end};
    use clock::RealClock;
    use model::package::ModelPackage;
    use model::package::manifest::plan::{PlanEntry, PlanFlavour};
    use scheduling::batch::Bucket;
    use scheduling::batch::plan::Shapes;
    use settings::Config;
    use settings::limits::GPU_BATCH_TOKENS;

    /// What a shell gives a process that SIGINT ended.
    const EXIT_INTERRUPTED: u8 = 130;

    /// Builds the plan; progress goes to standard error, the result to standard output.
    pub(in crate::cli) fn build_engine(config: &Config, typed: &ArgMatches) -> anyhow::Result<()> {
        let text = |name: &str| typed.get_one::<String>(name).map(String::as_str);
        let package = config.package.as_path();
        let library_dir = config.engine.tensorrt.library_dir.clone();
        if typed.get_flag("inspect") || typed.get_flag("layer-times") {
            let flavour = flavour(text("flavour"), library_dir.as_deref())?;
            let engine = load(config, flavour, device(typed))?;
            let told = match typed.get_flag("inspect") {
                true => engine.layers()?,
                false => layer_times(&engine)?.to_string(),
            };
            return writeln!(io::stdout(), "{told}").context("cannot write to standard output");
        }
        let options = BuildOptions {
            flavour: flavour(text("flavour"), library_dir.as_deref())?,
            library_dir,
            cuda_library_dir: config.engine.tensorrt.cuda_library_dir.clone(),
            precision: config.engine.precision,
            profiles: text("profiles")
                .map(|profiles| parse_profiles(profiles).map_err(|error| anyhow!(error)))
                .transpose()
                .context("--profiles")?,
            compute_capabilities: text("compute-capability")
                .unwrap_or_default()
                .split(',')
                .filter(|one| !one.trim().is_empty())
                .map(|one| one.trim().parse().map_err(|error: String| anyhow!(error)))
                .collect::<anyhow::Result<_>>()
                .context("--compute-capability")?,
            hardware_compatible: typed.get_flag("hardware-compatibility"),
            same_compute_capability: typed.get_flag("same-compute-capability"),
            version_compatible: typed.get_flag("version-compatible"),
            device: device(typed),
            optimization_level: typed.get_one("optimization-level").copied(),
            workspace_bytes: typed.get_one::<i64>("workspace-mib").map(|mib| mib << 20),
        };
        let stop = catch_signals()?;
        let bar = progress_bar::on_terminal();
        let bar = Arc::new(ShownBuild { bar, told: AtomicU32::new(0) });
        let shown = Arc::clone(&bar);
        let observer = Observer::new(move |permille, phase| {
            shown.show(permille, phase);
            !stop.load(Ordering::Relaxed)
        });
        let built = build::build_engine(package, &options, &observer, &RealClock::new());
        bar.bar.iter().for_each(ProgressBar::finish_and_clear);
        match built {
            Ok(built) => report(package, &built),
            Err(error) if error.is_cancelled() => {
                eprintln!("duovec: cancelled; {} is as it was", package.display());
                end(EXIT_INTERRUPTED);
            }
            Err(error) => Err(error.into()),
        }
    }

    fn device(typed: &ArgMatches) -> usize {
        *typed.get_one("device").expect("clap has a default for it")
    }

    /// Loads the plan as a server of this GPU alone would: one of several models of GPUs takes
    /// plans that are alike on all.
    fn load(
        config: &Config,
        flavour: PlanFlavour,
        device: usize,
    ) -> anyhow::Result<TensorRtEngine> {
        let package = ModelPackage::open(&config.package)?.in_precision(config.engine.precision)?;
        let most = config.queue.max_batch_tokens.or_else(|| GPU_BATCH_TOKENS.into_iter().max());
        // Which plan is the best depends on them.
        let shapes = Shapes::on_gpu(package.manifest().max_input_tokens, most.unwrap_or_default());
        let options = TensorRtOptions {
            flavour,
            library_dir: config.engine.tensorrt.library_dir.clone(),
            cuda_library_dir: config.engine.tensorrt.cuda_library_dir.clone(),
            devices: vec![device],
            graph_tokens: 0,
            precision: config.engine.precision,
            buckets: shapes.prepared().to_vec(),
        };
        Ok(TensorRtEngine::load(&package, &options)?)
    }

    /// A list of shapes, each with its layers in their order.
    fn layer_times(engine: &TensorRtEngine) -> anyhow::Result<Value> {
        let layer =
            |layer: &LayerTime| json!({"name": layer.name, "microseconds": layer.microseconds});
        let shape = |(bucket, layers): &(Bucket, Vec<LayerTime>)| {
            let layers: Vec<Value> = layers.iter().map(layer).collect();
            json!({"rows": bucket.rows, "length": bucket.length, "layers": layers})
        };
        Ok(engine.layer_times()?.iter().map(shape).collect())
    }

    /// The named flavour, or the first of the compiled ones whose library opens.
    fn flavour(named: Option<&str>, directory: Option<&Path>) -> anyhow::Result<PlanFlavour> {
        let all = PlanFlavour::ALL;
        if let Some(name) = named {
            let flavour = all.into_iter().find(|flavour| flavour.name() == name);
            return flavour.ok_or_else(|| anyhow!("there is no flavour {name}"));
        }
        let mut reasons = Vec::new();
        for flavour in all {
            match Library::open(flavour.into(), directory) {
                Ok(_) => return Ok(flavour),
                Err(error) => reasons.push(format!("{flavour}: {error}")),
            }
        }
        bail!(
            "no TensorRT can be opened; name its folder with --tensorrt-library-dir ({})",
            reasons.join("; ")
        )
    }

    /// Set by the first signal that asks for an end; the second one ends the process, which is as
    /// safe.
    fn catch_signals() -> anyhow::Result<Arc<AtomicBool>> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot catch signals")?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let mut signals = {
            let _inside = runtime.enter();
            Signals::catch().context("cannot catch signals")?
        };
        let wait = async move {
            signals.next().await;
            told.store(true, Ordering::Relaxed);
            signals.another().await;
            end(EXIT_INTERRUPTED);
        };
        thread::Builder::new()
            .name("duovec-signals".to_owned())
            .spawn(move || runtime.block_on(wait))
            .context("cannot start the thread that waits for signals")?;
        Ok(stop)
    }

    /// A bar on a terminal, a line for each tenth elsewhere. Told from the library's threads.
    struct ShownBuild {
        bar: Option<ProgressBar>,
        /// Tenths that have their line.
        told: AtomicU32,
    }

    impl ShownBuild {
        fn show(&self, permille: u32, phase: &str) {
            let Some(bar) = &self.bar else {
                if self.told.swap(permille / 100 + 1, Ordering::Relaxed) != permille / 100 + 1 {
                    // A closed standard error is no reason to fail.
                    let _ = writeln!(io::stderr(), "{:>3} % {phase}", permille / 10);
                }
                return;
            };
            bar.set_position(permille.into());
            bar.set_message(phase.to_owned());
        }
    }

    fn report(package: &Path, built: &BuiltPlan) -> anyhow::Result<()> {
        let PlanEntry { file, bytes, flavour, version, precision, profiles, build_seconds, .. } =
            &built.entry;
        for warning in &built.warnings {
            eprintln!("duovec: note: {warning}");
        }
        let numbers = match &built.tried {
            None => "not tried, no GPU here can run it".to_owned(),
            Some((device, seen)) => format!(
                "golden numbers on {device}: dense cosine at least {:.6}, lexical weights within \
                 {:.4}",
                seen.dense_cosine, seen.sparse_error
            ),
        };
        let layers = built.layers.map(|all| format!("{all} layers, ")).unwrap_or_default();
        let profiles: Vec<String> = profiles.iter().map(ToString::to_string).collect();
        let scratch = built.entry.scratch_bytes.iter().max().copied().unwrap_or(0);
        writeln!(
            io::stdout(),
            "{}: {flavour} {version}, {precision}, {layers}{bytes} bytes, {scratch} bytes of \
             scratch memory, built in {build_seconds} s, profiles {}; {numbers}",
            package.join(file).display(),
            profiles.join(", ")
        )
        .context("cannot write to standard output")
    }
}
