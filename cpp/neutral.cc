// All sources that name no type of TensorRT's as one translation unit, but for the bridge.

#include "cuda.cc"
#include "fusion.cc"
#include "layout.cc"
#include "profile.cc"
#include "progress.cc"
