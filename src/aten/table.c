// Every family of rules.
#include "aten/rule.h"

extern const tt_rule_entry tt_rules_activation[];
extern const tt_rule_entry tt_rules_adaptive[];
extern const tt_rule_entry tt_rules_attention[];
extern const tt_rule_entry tt_rules_conv[];
extern const tt_rule_entry tt_rules_creation[];
extern const tt_rule_entry tt_rules_ctc[];
extern const tt_rule_entry tt_rules_distance[];
extern const tt_rule_entry tt_rules_embedding[];
extern const tt_rule_entry tt_rules_fake_quantize[];
extern const tt_rule_entry tt_rules_fft[];
extern const tt_rule_entry tt_rules_foreach[];
extern const tt_rule_entry tt_rules_fractional_pool[];
extern const tt_rule_entry tt_rules_grid_sample[];
extern const tt_rule_entry tt_rules_hash[];
extern const tt_rule_entry tt_rules_histogram[];
extern const tt_rule_entry tt_rules_index[];
extern const tt_rule_entry tt_rules_internal[];
extern const tt_rule_entry tt_rules_linalg[];
extern const tt_rule_entry tt_rules_linalg_exp[];
extern const tt_rule_entry tt_rules_linalg_ldl[];
extern const tt_rule_entry tt_rules_linalg_lstsq[];
extern const tt_rule_entry tt_rules_linalg_lu[];
extern const tt_rule_entry tt_rules_linalg_qr[];
extern const tt_rule_entry tt_rules_linalg_eig[];
extern const tt_rule_entry tt_rules_linalg_eigh[];
extern const tt_rule_entry tt_rules_linalg_svd[];
extern const tt_rule_entry tt_rules_loss[];
extern const tt_rule_entry tt_rules_matmul[];
extern const tt_rule_entry tt_rules_nonzero[];
extern const tt_rule_entry tt_rules_norm[];
extern const tt_rule_entry tt_rules_optim[];
extern const tt_rule_entry tt_rules_pad[];
extern const tt_rule_entry tt_rules_pointwise_binary[];
extern const tt_rule_entry tt_rules_pointwise_logic[];
extern const tt_rule_entry tt_rules_pointwise_special[];
extern const tt_rule_entry tt_rules_pointwise_unary[];
extern const tt_rule_entry tt_rules_pool[];
extern const tt_rule_entry tt_rules_random[];
extern const tt_rule_entry tt_rules_random_count[];
extern const tt_rule_entry tt_rules_random_gamma[];
extern const tt_rule_entry tt_rules_reduce[];
extern const tt_rule_entry tt_rules_resize[];
extern const tt_rule_entry tt_rules_rnn[];
extern const tt_rule_entry tt_rules_scaled_mm[];
extern const tt_rule_entry tt_rules_scan[];
extern const tt_rule_entry tt_rules_scatter[];
extern const tt_rule_entry tt_rules_search[];
extern const tt_rule_entry tt_rules_segment[];
extern const tt_rule_entry tt_rules_shape[];
extern const tt_rule_entry tt_rules_softmax[];
extern const tt_rule_entry tt_rules_sort[];
extern const tt_rule_entry tt_rules_transformer[];
extern const tt_rule_entry tt_rules_unique[];
extern const tt_rule_entry tt_rules_view_grad[];

const tt_rule_entry *const tt_rule_families[] = {
    tt_rules_activation,
    tt_rules_adaptive,
    tt_rules_attention,
    tt_rules_conv,
    tt_rules_creation,
    tt_rules_ctc,
    tt_rules_distance,
    tt_rules_embedding,
    tt_rules_fake_quantize,
    tt_rules_fft,
    tt_rules_foreach,
    tt_rules_fractional_pool,
    tt_rules_grid_sample,
    tt_rules_hash,
    tt_rules_histogram,
    tt_rules_index,
    tt_rules_internal,
    tt_rules_linalg,
    tt_rules_linalg_exp,
    tt_rules_linalg_ldl,
    tt_rules_linalg_lstsq,
    tt_rules_linalg_lu,
    tt_rules_linalg_qr,
    tt_rules_linalg_eig,
    tt_rules_linalg_eigh,
    tt_rules_linalg_svd,
    tt_rules_loss,
    tt_rules_matmul,
    tt_rules_nonzero,
    tt_rules_norm,
    tt_rules_optim,
    tt_rules_pad,
    tt_rules_pointwise_binary,
    tt_rules_pointwise_logic,
    tt_rules_pointwise_special,
    tt_rules_pointwise_unary,
    tt_rules_pool,
    tt_rules_random,
    tt_rules_random_count,
    tt_rules_random_gamma,
    tt_rules_reduce,
    tt_rules_resize,
    tt_rules_rnn,
    tt_rules_scaled_mm,
    tt_rules_scan,
    tt_rules_scatter,
    tt_rules_search,
    tt_rules_segment,
    tt_rules_shape,
    tt_rules_softmax,
    tt_rules_sort,
    tt_rules_transformer,
    tt_rules_unique,
    tt_rules_view_grad,
    NULL,
};
