//! TensorRT and TensorRT-RTX behind the cxx bridge.

pub mod ffi;
