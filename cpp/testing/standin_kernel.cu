// The kernel of the stand-in for TensorRT on a real GPU. standin_kernel.ptx is made of this file
// and of standin_kernel.h by scripts/standin_kernel.sh; the driver compiles it for its GPU.

#include "testing/standin_kernel.h"

/// Nanoseconds of the GPU's own clock.
static __attribute__((device)) int64_t now() {
    int64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

extern "C" __attribute__((global)) void duovec_standin_run(duovec::standin::KernelArguments run) {
    duovec::standin::KernelThread const self{__nvvm_read_ptx_sreg_ctaid_x(),
                                             __nvvm_read_ptx_sreg_ctaid_y(),
                                             __nvvm_read_ptx_sreg_tid_x()};
    duovec::standin::run_thread(run, self);
    int64_t const begin = now();
    while (now() - begin < run.busy_ns) {
    }
}
