// The sets of kernels that were compiled. Shared by the files of src/kernels only.
#ifndef TORCHTPU_KERNELS_SETS_H
#define TORCHTPU_KERNELS_SETS_H

#include "kernels/kernels.h"

extern const tt_kernels tt_kernels_generic;
#if defined(__x86_64__)
extern const tt_kernels tt_kernels_avx2, tt_kernels_avx512;
#endif

#endif  // TORCHTPU_KERNELS_SETS_H
