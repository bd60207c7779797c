// The kernels for processors with AVX2; what instructions that means is said in CMakeLists.txt.
#if defined(__x86_64__)
#define TT_WIDTH 8
#include "kernels/attention_simd.h"
#include "kernels/norm_simd.h"
#include "kernels/product_simd.h"
#include "kernels/sets.h"

const tt_kernels tt_kernels_avx2 = {
    .name = "avx2",
    .attend = attend,
    .attend_scratch = attend_scratch,
    .attend_backward = attend_backward,
    .attend_backward_scratch = attend_backward_scratch,
    .multiply = multiply_item,
    .multiply_scratch = multiply_scratch,
    .normalise = normalise,
    .derive_norm = derive_norm,
    .derive_norm_scratch = derive_scratch,
};
#else
typedef int tt_no_avx2;
#endif
