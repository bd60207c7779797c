// Reading along one dim at positions that are known while building: pooling over uneven windows and resampling.
#ifndef TORCHTPU_ATEN_AXIS_H
#define TORCHTPU_ATEN_AXIS_H

#include "aten/dims.h"

// x[..., positions[0..count), ...]; positions are inside x. A slice or a repetition where that is what they are.
tt_hlo tt_axis_take(tt_hlo x, int32_t dim, const int64_t *positions, int64_t count);
// Sums of x over [start[i], end[i]) along `dim`; empty windows give 0.
tt_hlo tt_axis_window_sum(tt_hlo x, int32_t dim, const int64_t *start, const int64_t *end, int64_t count);
// A 1-d constant along `dim` of x's shape, in x's dtype.
tt_hlo tt_axis_values(tt_hlo x, int32_t dim, const double *values, int64_t count);
tt_hlo tt_axis_ints(tt_hlo x, int32_t dim, tt_dtype dtype, const int64_t *values, int64_t count);

#endif  // TORCHTPU_ATEN_AXIS_H
