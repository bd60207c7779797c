#include "aten/host.h"

#include <string.h>

#include "aten/dims.h"

void tt_host_number(tt_host_call *c, int64_t number) {
  if (c->number_count < TT_HOST_NUMBERS) {
    c->numbers[c->number_count++] = number;
  }
}

void tt_host_strides(tt_host_call *c, const int64_t *strides, int32_t ndim, int32_t rank) {
  for (int32_t i = 0; i < rank; i++) {
    tt_host_number(c, i < rank - ndim ? 0 : strides[i - (rank - ndim)]);
  }
}

void tt_host_operand(tt_host_call *c, tt_hlo x) {
  if (c->operand_count < TT_HOST_OPERANDS) {
    c->operands[c->operand_count++] = x;
  }
}

void tt_host_view(tt_rule *r, tt_host_call *c, const char *name, int64_t *out_strides) {
  const tt_operand *x = tt_operand_of(r, name);
  tt_hlo memory = NULL, offset = NULL;
  if (x && x->dtype == TT_F32 && tt_in_memory(r, name, &memory, &offset)) {
    memcpy(out_strides, x->strides, sizeof *out_strides * (size_t)x->ndim);
  } else if (x && !tt_failed(r)) {
    memory = v_flat(tt_in_as(r, name, TT_F32));
    offset = tt_hlo_scalar(tt_b(r), TT_S32, 0);
    int64_t stride = 1;
    for (int32_t i = x->ndim - 1; i >= 0; i--) {
      out_strides[i] = stride;
      stride *= x->sizes[i];
    }
  }
  tt_host_operand(c, memory);
  tt_host_operand(c, offset);
}

tt_host_result tt_host_result_like(const tt_operand *x) {
  tt_host_result result = {.rank = x->ndim};
  memcpy(result.sizes, x->sizes, sizeof *x->sizes * (size_t)x->ndim);
  for (int32_t d = 0; d < x->ndim; d++) {
    int32_t at = d;
    while (at > 0 && x->strides[result.order[at - 1]] < x->strides[d]) {
      result.order[at] = result.order[at - 1];
      at--;
    }
    result.order[at] = d;
  }
  return result;
}

void tt_host_result_strides(const tt_host_result *result, int64_t *out_strides) {
  int64_t stride = 1;
  for (int32_t i = result->rank - 1; i >= 0; i--) {
    out_strides[result->order[i]] = stride;
    stride *= result->sizes[result->order[i]];
  }
}

void tt_host_make(tt_rule *r, tt_host_call *c, const char *target, const tt_host_result *results, int32_t count,
                  tt_hlo *out) {
  enum { MOST = 4 };
  int64_t dims[MOST][TT_MAX_RANK];
  tt_hlo_type_spec types[MOST];
  for (int32_t i = 0; i < count && i < MOST; i++) {
    for (int32_t d = 0; d < results[i].rank; d++) {
      dims[i][d] = results[i].sizes[results[i].order[d]];
    }
    types[i] = (tt_hlo_type_spec){TT_F32, results[i].rank, dims[i]};
  }
  const tt_hlo_numbers numbers = {"numbers", c->numbers, c->number_count};
  tt_hlo_custom_call(tt_b(r), target, c->operands, c->operand_count, &numbers, 1, types, count, out);
  for (int32_t i = 0; i < count && i < MOST; i++) {
    int32_t back[TT_MAX_RANK];
    for (int32_t d = 0; d < results[i].rank; d++) {
      back[results[i].order[d]] = d;
    }
    out[i] = tt_hlo_transpose(out[i], back);
  }
}
