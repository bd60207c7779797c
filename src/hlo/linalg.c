// Linear algebra, Fourier transforms and random bits.
#include "hlo/internal.h"

static bool is_wide(tt_dtype dtype) { return dtype == TT_F32 || dtype == TT_F64 || tt_dtype_is_complex(dtype); }

// ---- random bits ----
tt_hlo tt_hlo_random_bits(tt_hlo state, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  static const char name[] = "stablehlo.rng_bit_generator";
  tt_hlo in[] = {state};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  if (state->dtype != TT_U64 || state->rank != 1 || state->dims[0] != 2) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the state must be a tensor<2xui64>");
  }
  if (dtype != TT_U32 && dtype != TT_U64) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "bits come as ui32 or ui64, not %s", tt_dtype_hlo_name(dtype));
  }
  tt_hlo_type types[2] = {tt_hlo_type_of(state), {dtype, rank, dims}};
  tt_hlo_op *op = tt_hlo_make(b, &(tt_hlo_new_op){.name = name,
                                                  .form = TT_FORM_FUNCTION,
                                                  .operands = in,
                                                  .operand_count = 1,
                                                  .attributes = ", algorithm = THREE_FRY",
                                                  .types = types,
                                                  .result_count = 2});
  return op ? &op->results[1] : NULL;
}

// ---- factorisations ----
static bool is_square(tt_hlo x) { return x->rank >= 2 && x->dims[x->rank - 1] == x->dims[x->rank - 2]; }

tt_hlo tt_hlo_cholesky(tt_hlo x, bool lower) {
  static const char name[] = "stablehlo.cholesky";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  if (!is_wide(x->dtype)) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "not implemented for %s", tt_dtype_torch_name(x->dtype));
  }
  if (!is_square(x)) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the matrices must be square");
  }
  if (tt_hlo_numel(x) == 0) {  // XLA:CPU may take for ever to compile it
    return x;
  }
  return tt_hlo_emit(b, name, TT_FORM_SAME, in, 1, lower ? ", lower = true" : ", lower = false", tt_hlo_type_of(x));
}

static bool check_solve(tt_hlo_builder *b, const char *name, const tt_hlo *in, bool left_side) {
  tt_hlo a = in[0], y = in[1];
  if (!is_wide(a->dtype)) {
    tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, name, in, 2, "not implemented for %s", tt_dtype_torch_name(a->dtype));
    return false;
  }
  bool fits = a->dtype == y->dtype && a->rank == y->rank && is_square(a) &&
              y->dims[y->rank - (left_side ? 2 : 1)] == a->dims[a->rank - 1];
  for (int32_t i = 0; fits && i < a->rank - 2; i++) {
    fits = a->dims[i] == y->dims[i];
  }
  if (!fits) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "the matrices must be square and fit the right-hand side");
  }
  return fits;
}

tt_hlo tt_hlo_triangular_solve(tt_hlo a, tt_hlo y, bool left_side, bool lower, bool unit_diagonal, bool transpose,
                               bool conjugate) {
  static const char name[] = "stablehlo.triangular_solve";
  tt_hlo in[] = {a, y};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 2);
  if (!b || !check_solve(b, name, in, left_side)) {
    return NULL;
  }
  if (tt_hlo_numel(y) == 0) {
    return y;
  }
  if (conjugate && !transpose && tt_dtype_is_complex(a->dtype)) {  // XLA has no such form
    in[0] = tt_hlo_unary(TT_CONJ, a);
    if (!in[0]) {
      return NULL;
    }
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_printf(text, "left_side = %s, lower = %s, unit_diagonal = %s, transpose_a = #stablehlo<transpose %s>",
                   left_side ? "true" : "false", lower ? "true" : "false", unit_diagonal ? "true" : "false",
                   !transpose  ? "NO_TRANSPOSE"
                   : conjugate ? "ADJOINT"
                               : "TRANSPOSE");
  return tt_hlo_emit(b, name, TT_FORM_GENERIC, in, 2, tt_strbuf_text(text), tt_hlo_type_of(y));
}

// ---- Fourier transforms ----
tt_hlo tt_hlo_fft(tt_hlo_fft_kind kind, tt_hlo x, const int64_t *lengths, int32_t count) {
  static const char name[] = "stablehlo.fft";
  static const char *const kinds[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  if ((unsigned)kind > TT_IRFFT) {
    return TT_HLO_REFUSE(TT_ERR_INTERNAL, name, "no such transform: %d", (int)kind);
  }
  bool real_input = kind == TT_RFFT;
  if (!is_wide(x->dtype) || tt_dtype_is_complex(x->dtype) == real_input) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "%s is not implemented for %s", kinds[kind],
                         tt_dtype_torch_name(x->dtype));
  }
  if (count < 1 || count > 3 || count > x->rank || !lengths) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "%d dims to transform; 1 to 3 are possible, within the rank", count);
  }
  int64_t dims[TT_MAX_RANK];
  for (int32_t i = 0; i < x->rank; i++) {
    int32_t k = i - (x->rank - count);
    bool last = i == x->rank - 1;
    int64_t half = k >= 0 && last ? lengths[k] / 2 + 1 : 0;
    int64_t want = k < 0 ? x->dims[i] : kind == TT_IRFFT && last ? half : lengths[k];
    if (k >= 0 && (lengths[k] < 1 || want != x->dims[i])) {
      return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "length %lld doesn't match dim %d of size %lld", (long long)lengths[k],
                           i, (long long)x->dims[i]);
    }
    dims[i] = k < 0 ? x->dims[i] : kind == TT_RFFT && last ? half : lengths[k];
  }
  tt_hlo_type type = {kind == TT_IRFFT ? tt_dtype_real(x->dtype) : tt_dtype_complex(x->dtype), x->rank, dims};
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_printf(text, ", type = %s, length = [", kinds[kind]);
  tt_hlo_put_longs(text, lengths, count);
  tt_strbuf_puts(text, "]");
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 1, tt_strbuf_text(text), type);
}
