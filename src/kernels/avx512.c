// The kernels for processors with AVX512.
#if defined(__x86_64__)
#define TT_WIDTH 16
#define TT_SET avx512
#include "kernels/set.h"
#else
typedef int tt_no_avx512;
#endif
