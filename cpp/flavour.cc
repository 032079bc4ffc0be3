// All sources of a flavour as one translation unit, since NVIDIA's headers take most of the time.

#include "builder.cc"
#include "diagnostics.cc"
#include "engine.cc"
#include "library.cc"
#include "network.cc"
#include "session.cc"
