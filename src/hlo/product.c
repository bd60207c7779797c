// Products: dot_general and convolution.
#include "hlo/internal.h"

static const char *precision_name(tt_hlo_precision precision) {
  return precision == TT_PRECISION_HIGHEST ? "HIGHEST" : precision == TT_PRECISION_HIGH ? "HIGH" : NULL;
}

// ---- dot_general ----
// Batch and contracting dims of one side: in range, none twice.
static bool check_side(tt_hlo_builder *b, const char *name, const tt_hlo *in, const char *what, tt_hlo x,
                       const int32_t *batch, int32_t batch_count, const int32_t *contract, int32_t contract_count) {
  int32_t all[2 * TT_MAX_RANK], count = 0;
  bool complete = batch_count >= 0 && contract_count >= 0 && batch_count <= x->rank && contract_count <= x->rank &&
                  (batch || !batch_count) && (contract || !contract_count);
  if (!complete) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "%s: %d batch and %d contracting dims", what, batch_count,
                  contract_count);
    return false;
  }
  for (int32_t i = 0; i < batch_count; i++) {
    all[count++] = batch[i];
  }
  for (int32_t i = 0; i < contract_count; i++) {
    all[count++] = contract[i];
  }
  return tt_hlo_check_dim_set(b, name, in, 2, what, all, count, x->rank);
}

static bool check_pairs(tt_hlo_builder *b, const char *name, const tt_hlo *in, const char *what, const int32_t *left,
                        const int32_t *right, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    if (in[0]->dims[left[i]] != in[1]->dims[right[i]]) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "%s dims %d and %d differ in size", what, left[i], right[i]);
      return false;
    }
  }
  return true;
}

// Appends the sizes of the dims of x that are neither batch nor contracting.
static void append_free(tt_hlo x, const int32_t *batch, int32_t batch_count, const int32_t *contract,
                        int32_t contract_count, int64_t *dims, int32_t *rank) {
  uint64_t used = 0;
  for (int32_t i = 0; i < batch_count; i++) {
    used |= (uint64_t)1 << batch[i];
  }
  for (int32_t i = 0; i < contract_count; i++) {
    used |= (uint64_t)1 << contract[i];
  }
  for (int32_t i = 0; i < x->rank; i++) {
    if (!(used >> i & 1)) {
      dims[(*rank)++] = x->dims[i];
    }
  }
}

static void put_pair(tt_strbuf *text, const char *key, const int32_t *left, const int32_t *right, int32_t count) {
  tt_strbuf_puts(text, key);
  tt_hlo_put_ints(text, left, count);
  tt_strbuf_puts(text, "] x [");
  tt_hlo_put_ints(text, right, count);
  tt_strbuf_puts(text, "]");
}

// Whether a product of `from` can be had as `to`.
static bool widens(tt_dtype from, tt_dtype to) {
  return from == to || (tt_dtype_is_float(from) && tt_dtype_is_float(to)) ||
         (tt_dtype_is_int(from) && tt_dtype_is_int(to) && tt_dtype_size(to) >= tt_dtype_size(from));
}

tt_hlo tt_hlo_dot_general(tt_hlo lhs, tt_hlo rhs, const tt_hlo_dot_dims *d, tt_hlo_precision precision,
                          tt_dtype dtype) {
  static const char name[] = "stablehlo.dot_general";
  tt_hlo in[] = {lhs, rhs};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 2);
  if (!b) {
    return NULL;
  }
  if (!d) {
    return TT_HLO_REFUSE(TT_ERR_INTERNAL, name, "the dims are missing");
  }
  dtype = dtype == TT_DTYPE_INVALID ? lhs->dtype : dtype;
  if (lhs->dtype != rhs->dtype) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the operands must have one element type");
  }
  if (!widens(lhs->dtype, dtype)) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "no product of type %s", tt_dtype_torch_name(dtype));
  }
  if (!check_side(b, name, in, "lhs", lhs, d->lhs_batch, d->batch_count, d->lhs_contract, d->contract_count) ||
      !check_side(b, name, in, "rhs", rhs, d->rhs_batch, d->batch_count, d->rhs_contract, d->contract_count) ||
      !check_pairs(b, name, in, "batch", d->lhs_batch, d->rhs_batch, d->batch_count) ||
      !check_pairs(b, name, in, "contracting", d->lhs_contract, d->rhs_contract, d->contract_count)) {
    return NULL;
  }
  int64_t dims[2 * TT_MAX_RANK];
  int32_t rank = 0;
  for (; rank < d->batch_count; rank++) {
    dims[rank] = lhs->dims[d->lhs_batch[rank]];
  }
  append_free(lhs, d->lhs_batch, d->batch_count, d->lhs_contract, d->contract_count, dims, &rank);
  append_free(rhs, d->rhs_batch, d->batch_count, d->rhs_contract, d->contract_count, dims, &rank);
  tt_strbuf *text = tt_hlo_attributes(b);
  if (d->batch_count) {
    put_pair(text, ", batching_dims = [", d->lhs_batch, d->rhs_batch, d->batch_count);
  }
  put_pair(text, ", contracting_dims = [", d->lhs_contract, d->rhs_contract, d->contract_count);
  const char *p = precision_name(precision);
  if (p) {
    tt_strbuf_printf(text, ", precision = [%s, %s]", p, p);
  }
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 2, tt_strbuf_text(text), (tt_hlo_type){dtype, rank, dims});
}

// ---- convolution ----
static int64_t at(const int64_t *values, int32_t i, int64_t if_null) { return values ? values[i] : if_null; }

// The two named dims and the spatial ones must be a permutation of all dims.
static bool check_layout(tt_hlo_builder *b, const char *name, const tt_hlo *in, const char *what, int32_t first,
                         int32_t second, const int32_t *spatial, int32_t spatial_rank) {
  int32_t all[TT_MAX_RANK] = {first, second};
  if (spatial_rank && !spatial) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, name, in, 2, "%s spatial dims are missing", what);
    return false;
  }
  for (int32_t i = 0; i < spatial_rank; i++) {
    all[2 + i] = spatial[i];
  }
  return tt_hlo_check_dim_set(b, name, in, 2, what, all, spatial_rank + 2, spatial_rank + 2);
}

static bool check_groups(tt_hlo_builder *b, const char *name, const tt_hlo *in, const tt_hlo_conv_dims *d,
                         int64_t feature_groups, int64_t batch_groups) {
  int64_t batch = in[0]->dims[d->lhs_batch], features = in[0]->dims[d->lhs_feature];
  int64_t in_features = in[1]->dims[d->rhs_in_feature], out_features = in[1]->dims[d->rhs_out_feature];
  if (feature_groups < 1 || batch_groups < 1 || (feature_groups > 1 && batch_groups > 1)) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "%lld feature groups and %lld batch groups: one must be 1",
                  (long long)feature_groups, (long long)batch_groups);
  } else if (features % feature_groups || features / feature_groups != in_features) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "%lld features in %lld groups don't match a kernel of %lld",
                  (long long)features, (long long)feature_groups, (long long)in_features);
  } else if (out_features % feature_groups || out_features % batch_groups || batch % batch_groups) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "%lld output features or batch %lld don't divide into groups",
                  (long long)out_features, (long long)batch);
  } else {
    return true;
  }
  return false;
}

static void put_layout(tt_strbuf *text, int32_t first, char first_name, int32_t second, char second_name,
                       const int32_t *spatial, int32_t spatial_rank) {
  for (int32_t i = 0; i < spatial_rank + 2; i++) {
    tt_strbuf_puts(text, i ? ", " : "[");
    if (i == first || i == second) {
      tt_strbuf_append(text, i == first ? &first_name : &second_name, 1);
    }
    for (int32_t k = 0; k < spatial_rank; k++) {
      if (spatial[k] == i) {
        tt_hlo_put_int(text, k);
      }
    }
  }
  tt_strbuf_puts(text, "]");
}

static void put_window_list(tt_strbuf *text, const char *key, const int64_t *values, int32_t count) {
  if (values && count) {
    tt_strbuf_puts(text, key);
    tt_hlo_put_longs(text, values, count);
    tt_strbuf_puts(text, "], ");
  }
}

static void put_window(tt_strbuf *text, const tt_hlo_conv_dims *d) {
  tt_strbuf_puts(text, ", window = {");
  put_window_list(text, "stride = [", d->strides, d->spatial_rank);
  if ((d->pad_low || d->pad_high) && d->spatial_rank) {
    for (int32_t i = 0; i < d->spatial_rank; i++) {
      tt_strbuf_printf(text, "%s[%lld, %lld]", i ? ", " : "pad = [", (long long)at(d->pad_low, i, 0),
                       (long long)at(d->pad_high, i, 0));
    }
    tt_strbuf_puts(text, "], ");
  }
  put_window_list(text, "lhs_dilate = [", d->lhs_dilation, d->spatial_rank);
  put_window_list(text, "rhs_dilate = [", d->rhs_dilation, d->spatial_rank);
  if (d->reverse && d->spatial_rank) {
    for (int32_t i = 0; i < d->spatial_rank; i++) {
      tt_strbuf_puts(text, i ? ", " : "reverse = [");
      tt_strbuf_puts(text, d->reverse[i] ? "true" : "false");
    }
    tt_strbuf_puts(text, "], ");
  }
  if (text->length > 2 && text->data[text->length - 2] == ',') {  // the last ", "
    text->data[text->length -= 2] = '\0';
  }
  tt_strbuf_puts(text, "}");
}

static const char *convolution_attributes(tt_hlo_builder *b, const tt_hlo_conv_dims *d, int64_t feature_groups,
                                          int64_t batch_groups, tt_hlo_precision precision) {
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, " dim_numbers = ");
  put_layout(text, d->lhs_batch, 'b', d->lhs_feature, 'f', d->lhs_spatial, d->spatial_rank);
  tt_strbuf_puts(text, "x");
  put_layout(text, d->rhs_out_feature, 'o', d->rhs_in_feature, 'i', d->rhs_spatial, d->spatial_rank);
  tt_strbuf_puts(text, "->");
  put_layout(text, d->out_batch, 'b', d->out_feature, 'f', d->out_spatial, d->spatial_rank);
  put_window(text, d);
  tt_strbuf_printf(text, " {batch_group_count = %lld : i64, feature_group_count = %lld : i64", (long long)batch_groups,
                   (long long)feature_groups);
  const char *p = precision_name(precision);
  if (p) {
    tt_strbuf_printf(text, ", precision_config = [#stablehlo<precision %s>, #stablehlo<precision %s>]", p, p);
  }
  tt_strbuf_puts(text, "}");
  return tt_strbuf_text(text);
}

static bool check_convolution(tt_hlo_builder *b, const char *name, const tt_hlo *in, const tt_hlo_conv_dims *d) {
  if (!d || d->spatial_rank < 0 || d->spatial_rank > TT_MAX_RANK - 2) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, name, in, 2, "the dims are missing or have too many spatial ones");
    return false;
  }
  if (in[0]->rank != d->spatial_rank + 2 || in[1]->rank != in[0]->rank) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "the operands must have rank %d", d->spatial_rank + 2);
    return false;
  }
  if (in[0]->dtype != in[1]->dtype) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "the operands must have one element type");
    return false;
  }
  if (in[0]->dtype == TT_PRED) {
    tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, name, in, 2, "not implemented for bool");
    return false;
  }
  return check_layout(b, name, in, "lhs", d->lhs_batch, d->lhs_feature, d->lhs_spatial, d->spatial_rank) &&
         check_layout(b, name, in, "rhs", d->rhs_out_feature, d->rhs_in_feature, d->rhs_spatial, d->spatial_rank) &&
         check_layout(b, name, in, "result", d->out_batch, d->out_feature, d->out_spatial, d->spatial_rank);
}

// Whether XLA takes spatial dim i for a group written as a dim, whatever the size of the input, and dies when it swaps
// the operands (algebraic_simplifier.cc, SwapConvOperands).
static bool looks_like_group(const tt_hlo_conv_dims *d, int32_t i, int64_t input, int64_t kernel) {
  return kernel > 1 && input != kernel && at(d->lhs_dilation, i, 1) == kernel && at(d->strides, i, 1) == kernel - 1 &&
         at(d->rhs_dilation, i, 1) == 1 && !at(d->pad_low, i, 0) && !at(d->pad_high, i, 0) &&
         !(d->reverse && d->reverse[i]);
}

// Such dims are reversed twice, by hand and by the window, which breaks the pattern. True if there are any: then *rhs
// and reverse[] are the new kernel and window reversal.
static bool disguise_groups(const tt_hlo_conv_dims *d, tt_hlo lhs, tt_hlo *rhs, bool *reverse) {
  int32_t dims[TT_MAX_RANK], count = 0;
  for (int32_t i = 0; i < d->spatial_rank; i++) {
    reverse[i] = d->reverse && d->reverse[i];
    if (looks_like_group(d, i, lhs->dims[d->lhs_spatial[i]], (*rhs)->dims[d->rhs_spatial[i]])) {
      dims[count++] = d->rhs_spatial[i];
      reverse[i] = true;
    }
  }
  *rhs = tt_hlo_reverse(*rhs, dims, count);
  return count > 0;
}

tt_hlo tt_hlo_convolution(tt_hlo lhs, tt_hlo rhs, const tt_hlo_conv_dims *d, tt_hlo_precision precision) {
  static const char name[] = "stablehlo.convolution";
  tt_hlo in[] = {lhs, rhs};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 2);
  if (!b || !check_convolution(b, name, in, d)) {
    return NULL;
  }
  int64_t feature_groups = d->feature_groups ? d->feature_groups : 1;
  int64_t batch_groups = d->batch_groups ? d->batch_groups : 1;
  if (!check_groups(b, name, in, d, feature_groups, batch_groups)) {
    return NULL;
  }
  int64_t dims[TT_MAX_RANK];
  dims[d->out_batch] = lhs->dims[d->lhs_batch] / batch_groups;
  dims[d->out_feature] = rhs->dims[d->rhs_out_feature];
  for (int32_t i = 0; i < d->spatial_rank; i++) {
    const char *why = NULL;
    int64_t size = tt_hlo_window_size(lhs->dims[d->lhs_spatial[i]], at(d->pad_low, i, 0), at(d->pad_high, i, 0),
                                      at(d->lhs_dilation, i, 1), rhs->dims[d->rhs_spatial[i]],
                                      at(d->rhs_dilation, i, 1), at(d->strides, i, 1), &why);
    if (size < 0) {
      return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "spatial dim %d: %s", i, why);
    }
    dims[d->out_spatial[i]] = size;
  }
  bool reverse[TT_MAX_RANK];
  tt_hlo_conv_dims disguised = *d;
  if (disguise_groups(d, lhs, &in[1], reverse)) {
    disguised.reverse = reverse;
  }
  if (!in[1]) {
    return NULL;
  }
  return tt_hlo_emit(b, name, TT_FORM_CALL, in, 2,
                     convolution_attributes(b, &disguised, feature_groups, batch_groups, precision),
                     (tt_hlo_type){lhs->dtype, lhs->rank, dims});
}
