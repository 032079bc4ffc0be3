//! Builds what the TensorRT features need; without them it does nothing.
//!
//! 1. Find the headers of each flavour and of the CUDA runtime: the variable, then the usual places
//!    of an installed SDK, then `third_party/`, which `scripts/fetch_tensorrt.sh` fills.
//! 2. Compile the flavour-neutral part of `cpp/` with the cxx bridge.
//! 3. Compile the rest of `cpp/` once for each enabled flavour and, of the data-centre one, for each
//!    major version whose headers are there, into namespaces of their own.
//! 4. Bind the CUDA runtime's functions that `src/engine/cuda.rs` calls; they are looked up when
//!    the library is opened at run time, so nothing of NVIDIA's is linked.
//!
//! And it packs the files of Swagger UI that `src/http/pages.rs` serves.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    docs::pack();
    #[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
    native::build();
}

mod docs {
    use std::borrow::Cow;
    use std::env;
    use std::fs::File;
    use std::io::{self, Cursor};
    use std::path::PathBuf;

    use flate2::{Compression, write::GzEncoder};
    use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
    use zip::ZipArchive;

    /// All that the page needs of the release; the rest is other ways to load the same.
    const FILES: &[&str] = &["swagger-ui.css", "swagger-ui-bundle.js"];

    pub(super) fn pack() {
        let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        let release = Cursor::new(SWAGGER_UI_VENDORED);
        let mut release = ZipArchive::new(release).expect("the crate holds a zip archive");
        for name in FILES {
            let end = format!("/dist/{name}");
            let is_wanted = |path: &Cow<'_, str>| path.ends_with(&end);
            let path = release.file_names().filter_map(Result::ok).find(is_wanted);
            let path = path.map(Cow::into_owned);
            let path = path.unwrap_or_else(|| panic!("Swagger UI's release has no {name}"));
            let mut plain = release.by_name(&path).expect("it is listed");
            let packed = File::create(folder.join(format!("{name}.gz")));
            let packed = packed.expect("cargo's output folder is writable");
            let mut packed = GzEncoder::new(packed, Compression::best());
            io::copy(&mut plain, &mut packed).expect("cargo's output folder is writable");
            packed.finish().expect("cargo's output folder is writable");
        }
    }
}

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
#[path = "cpp/headers.rs"]
mod headers;

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod native {
    use std::env;
    use std::path::{Path, PathBuf};
    use std::process::{Command, exit};

    use crate::headers::{flags, suits};

    /// Set for the child process that only runs bindgen.
    const BINDGEN_STEP: &str = "DUOVEC_BINDGEN_STEP";

    /// All that `src/engine/cuda.rs` calls; a library that lacks one of them is refused.
    const CUDA_FUNCTIONS: &[&str] = &[
        "cudaDeviceGetAttribute",
        "cudaDriverGetVersion",
        "cudaGetDeviceCount",
        "cudaGetDeviceProperties",
        "cudaGetErrorName",
        "cudaGetErrorString",
        "cudaGetLastError",
        "cudaMemGetInfo",
        "cudaRuntimeGetVersion",
        "cudaSetDevice",
    ];

    /// A folder of headers and where it may be.
    struct Headers {
        what: &'static str,
        variable: &'static str,
        /// All that are needed from there.
        files: &'static [&'static str],
        /// A line of the first begins with one of these when it is of a version that the sources
        /// are written for.
        versions: &'static [&'static str],
        system: &'static [&'static str],
        fetched: &'static str,
    }

    const CUDA: Headers = Headers {
        what: "CUDA 13's runtime",
        variable: "CUDA_INCLUDE_DIR",
        files: &["cuda_runtime_api.h"],
        versions: &["#define CUDART_VERSION 13"],
        system: &["/usr/local/cuda/include", "/usr/include"],
        fetched: "third_party/cuda/include",
    };
    const TENSORRT: Headers = Headers {
        what: "TensorRT 11",
        variable: "TENSORRT_INCLUDE_DIR",
        files: TENSORRT_FILES,
        versions: &["#define TRT_MAJOR_ENTERPRISE 11", "#define NV_TENSORRT_MAJOR 11"],
        system: TENSORRT_PLACES,
        fetched: "third_party/headers/tensorrt",
    };
    const TENSORRT_10: Headers = Headers {
        what: "TensorRT 10",
        versions: &["#define TRT_MAJOR_ENTERPRISE 10", "#define NV_TENSORRT_MAJOR 10"],
        fetched: "third_party/headers/tensorrt-10",
        ..TENSORRT
    };
    /// Debian has them in two packages, libnvinfer-headers-dev and libnvonnxparsers-dev.
    const TENSORRT_FILES: &[&str] = &["NvInferVersion.h", "NvOnnxParser.h"];
    const TENSORRT_PLACES: &[&str] = &[
        "/usr/include/x86_64-linux-gnu",
        "/usr/include/aarch64-linux-gnu",
        "/usr/local/tensorrt/include",
    ];
    const TENSORRT_RTX: Headers = Headers {
        what: "TensorRT-RTX 1.7",
        variable: "TENSORRT_RTX_INCLUDE_DIR",
        files: TENSORRT_FILES,
        versions: &["#define TRT_MAJOR_RTX 1"],
        system: &["/usr/local/tensorrt-rtx/include"],
        fetched: "third_party/headers/tensorrt-rtx",
    };

    pub(super) fn build() {
        let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
        println!("cargo::rerun-if-changed=cpp");
        println!("cargo::rerun-if-changed=src/engine/tensorrt/ffi.rs");
        let cuda = find(&root, &CUDA);
        if env::var_os(BINDGEN_STEP).is_some() {
            return bind_cuda(&cuda);
        }
        let mut defines = Vec::new();
        if cfg!(feature = "tensorrt") {
            // Programs for a machine with one of the two need the headers of that one only.
            if let Some(headers) = search(&root, &TENSORRT) {
                compile_flavour("tensorrt", &headers, &cuda, &[]);
                defines.push("DUOVEC_WITH_TENSORRT");
            }
            if let Some(headers) = search(&root, &TENSORRT_10) {
                compile_flavour("tensorrt_10", &headers, &cuda, &renamed("10"));
                defines.push("DUOVEC_WITH_TENSORRT_10");
            }
            if defines.is_empty() {
                fail_to_find(&TENSORRT);
            }
        }
        if cfg!(feature = "tensorrt-rtx") {
            let headers = find(&root, &TENSORRT_RTX);
            let defined = [&renamed("rtx")[..], &[("DUOVEC_RTX", "1".to_owned())]].concat();
            compile_flavour("rtx", &headers, &cuda, &defined);
            defines.push("DUOVEC_WITH_TENSORRT_RTX");
        }
        compile_bridge(&cuda, &defines);
        run_bindgen(&root);
    }

    /// The vendor's namespaces under other names: the tables of virtual functions differ between
    /// flavours and major versions, the names do not, so the linker would merge them.
    fn renamed(ending: &str) -> [(&'static str, String); 2] {
        ["nvinfer1", "nvonnxparser"].map(|name| (name, format!("{name}_{ending}")))
    }

    fn find(root: &Path, headers: &Headers) -> PathBuf {
        search(root, headers).unwrap_or_else(|| fail_to_find(headers))
    }

    /// The first folder of that version: the one that the variable names, or one of the usual
    /// places.
    fn search(root: &Path, headers: &Headers) -> Option<PathBuf> {
        println!("cargo::rerun-if-env-changed={}", headers.variable);
        let suits = |folder: &PathBuf| suits(folder, headers.files, headers.versions);
        if let Some(named) = env::var_os(headers.variable) {
            return Some(PathBuf::from(named)).filter(suits);
        }
        let fetched = root.join(headers.fetched);
        for file in headers.files {
            println!("cargo::rerun-if-changed={}", fetched.join(file).display());
        }
        headers.system.iter().map(PathBuf::from).chain([fetched]).find(suits)
    }

    fn fail_to_find(headers: &Headers) -> ! {
        let Headers { what, variable, files, .. } = headers;
        let files = files.join(" and ");
        match env::var_os(variable) {
            Some(named) => fail(&format!(
                "{variable} names {}, which lacks {files} of {what}: name a folder that has \
                 all of it, or unset {variable} and run scripts/fetch_tensorrt.sh",
                PathBuf::from(named).display()
            )),
            None => fail(&format!(
                "the headers of {what} are not here: set {variable} to the folder of {files}, or \
                 run scripts/fetch_tensorrt.sh"
            )),
        }
    }

    fn fail(message: &str) -> ! {
        println!("cargo::error={message}");
        exit(1);
    }

    fn strict(build: &mut cc::Build) -> &mut cc::Build {
        build
            .cpp(true)
            .std("c++20")
            .include("cpp")
            // As the profiles have it for Rust: whole debug information takes a third of the time.
            .debug(false)
            .flag("-g1")
            .flag("-fvisibility=hidden")
            .flag("-Wall")
            .flag("-Wextra")
            .flag("-Wpedantic")
            .flag("-Werror")
    }

    fn compile_bridge(cuda: &Path, defines: &[&str]) {
        let mut build = cxx_build::bridge("src/engine/tensorrt/ffi.rs");
        build.flags(flags(cuda));
        build.files(["cpp/bridge.cc", "cpp/cuda.cc", "cpp/layout.cc"]);
        for define in defines {
            build.define(define, None);
        }
        strict(&mut build).compile("duovec_bridge");
    }

    fn compile_flavour(name: &str, headers: &Path, cuda: &Path, defines: &[(&str, String)]) {
        let mut build = cc::Build::new();
        build.file("cpp/flavour.cc");
        build.define("DUOVEC_FLAVOUR", name);
        for (macro_name, value) in defines {
            build.define(macro_name, value.as_str());
        }
        for folder in [headers, cuda] {
            build.flags(flags(folder));
        }
        strict(&mut build).compile(&format!("duovec_{name}"));
    }

    /// Runs this program again for the bindings: libclang's folder is a variable that must be set
    /// before the process starts.
    fn run_bindgen(root: &Path) {
        println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
        let program = env::current_exe().expect("a build script knows its own path");
        let mut command = Command::new(program);
        command.env(BINDGEN_STEP, "1");
        let fetched = root.join("third_party/libclang");
        if env::var_os("LIBCLANG_PATH").is_none() && fetched.join("libclang.so").exists() {
            command.env("LIBCLANG_PATH", &fetched);
        }
        let done = command.status().expect("a build script can be run again");
        if !done.success() {
            fail(
                "the CUDA runtime's bindings cannot be made (the reason stands above): bindgen \
                 needs libclang; set LIBCLANG_PATH to its folder, or run scripts/fetch_tensorrt.sh",
            );
        }
    }

    fn bind_cuda(cuda: &Path) {
        let header = cuda.join("cuda_runtime_api.h");
        let mut builder = bindgen::Builder::default()
            .header(header.to_str().expect("the path of a header is UTF-8"))
            .clang_arg(format!("-isystem{}", cuda.display()))
            .dynamic_library_name("CudaRuntime")
            // A missing function is an error of opening, not a panic of the first call.
            .dynamic_link_require_all(true)
            .layout_tests(false)
            .generate_comments(false);
        if let Some(folder) = compiler_headers() {
            builder = builder.clang_arg(format!("-isystem{folder}"));
        }
        for function in CUDA_FUNCTIONS {
            builder = builder.allowlist_function(function);
        }
        let bindings = match builder.generate() {
            Ok(bindings) => bindings,
            Err(error) => fail(&format!("bindgen cannot read {}: {error}", header.display())),
        };
        let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        bindings
            .write_to_file(folder.join("cuda_runtime.rs"))
            .expect("cargo's output folder is writable");
    }

    /// Headers like stddef.h, which a libclang without its own installation lacks.
    fn compiler_headers() -> Option<String> {
        let output = Command::new("cc").arg("-print-file-name=include/stddef.h").output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        path.is_absolute().then(|| path.parent().map(|folder| folder.display().to_string()))?
    }
}
