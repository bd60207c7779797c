// The kernels for processors with AVX2.
#if defined(__x86_64__)
#define TT_WIDTH 8
#define TT_SET avx2
#include "kernels/set.h"
#else
typedef int tt_no_avx2;
#endif
