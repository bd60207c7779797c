// The kernels for one set of instructions: TT_WIDTH floats a vector, as the set TT_SET. What instructions that means is
// said in CMakeLists.txt, for the file that includes this.
#include "kernels/attention_simd.h"
#include "kernels/norm_simd.h"
#include "kernels/product_simd.h"
#include "kernels/sets.h"

#define TT_JOIN(a, b) a##b
#define TT_TEXT(a) #a
#define TT_KERNELS(set) TT_JOIN(tt_kernels_, set)
#define TT_NAME(set) TT_TEXT(set)

const tt_kernels TT_KERNELS(TT_SET) = {
    .name = TT_NAME(TT_SET),
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
