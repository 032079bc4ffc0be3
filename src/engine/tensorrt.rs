//! TensorRT and TensorRT-RTX: plans built from ONNX, behind the cxx bridge.

pub mod build;
pub mod ffi;
pub mod plan;
