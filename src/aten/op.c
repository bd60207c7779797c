// Operator forms bound to their rules.
#include <stdlib.h>
#include <string.h>

#include "aten/internal.h"

static const tt_rule_entry *find_rule(const char *name) {
  for (const tt_rule_entry *const *family = tt_rule_families; *family; family++) {
    for (const tt_rule_entry *entry = *family; entry->name; entry++) {
      if (!strcmp(entry->name, name)) {
        return entry;
      }
    }
  }
  return NULL;
}

const char *tt_rule_name_at(int32_t index) {
  for (const tt_rule_entry *const *family = tt_rule_families; *family; family++) {
    for (const tt_rule_entry *entry = *family; entry->name; entry++) {
      if (index-- == 0) {
        return entry->name;
      }
    }
  }
  return NULL;
}

// Whether a comma-separated list of names holds `name`; for "name=1,2;other=3" gives the text after '='.
static const char *find_name(const char *list, const char *name, char separator) {
  size_t length = strlen(name);
  for (const char *at = list; at && *at;) {
    if (!strncmp(at, name, length) && (!at[length] || at[length] == separator || at[length] == '=')) {
      return at + length + (at[length] == '=');
    }
    at = strchr(at, separator);
    at = at ? at + 1 : NULL;
  }
  return NULL;
}

static void read_special(tt_op_arg *arg, const char *list) {
  const char *at = list ? find_name(list, arg->name, ';') : NULL;
  while (at && arg->special_count < TT_MAX_SPECIAL) {
    char *end;
    double value = strtod(at, &end);
    if (end == at) {
      break;
    }
    arg->special[arg->special_count++] = value;
    at = *end == ',' ? end + 1 : NULL;
  }
}

double tt_number_double(const tt_number *n) {
  return n->type == TT_F64 || n->type == TT_C128 ? n->u.f[0]
         : n->type == TT_U64                     ? (double)(uint64_t)n->u.i
                                                 : (double)n->u.i;
}

static void copy_arg(tt_op_arg *arg, const tt_arg_schema *schema, const tt_rule_entry *rule) {
  arg->name = strdup(schema->name);
  arg->kind = schema->kind;
  arg->is_out = schema->is_out;
  arg->is_apart = find_name(rule->apart, schema->name, ',');
  bool number = schema->kind == TT_KIND_NUMBER || schema->kind == TT_KIND_FLOAT || schema->kind == TT_KIND_NUMBERS;
  arg->is_static = number && find_name(rule->static_args, schema->name, ',');
  arg->is_operand = number || (schema->kind == TT_KIND_INT && find_name(rule->dynamic_args, schema->name, ','));
  arg->has_default = number && schema->has_default && schema->default_value.type != TT_C128;
  arg->default_value = arg->has_default ? tt_number_double(&schema->default_value) : 0;
  read_special(arg, rule->special_values);
}

tt_op *tt_op_register(const char *rule_name, const tt_op_schema *schema) {
  const tt_rule_entry *rule = find_rule(rule_name);
  if (!rule || schema->arg_count > TT_MAX_ARGS) {
    return NULL;
  }
  tt_op *op = calloc(1, sizeof *op);
  op->rule = rule;
  op->name = strdup(schema->name);
  const char *start = strstr(op->name, "::");
  op->short_name = strdup(start ? start + 2 : op->name);
  op->short_name[strcspn(op->short_name, ".")] = '\0';
  op->arg_count = schema->arg_count;
  op->args = calloc((size_t)schema->arg_count + 1, sizeof *op->args);
  for (int32_t i = 0; i < schema->arg_count; i++) {
    copy_arg(&op->args[i], &schema->args[i], rule);
  }
  op->return_count = schema->return_count;
  op->return_alias = calloc((size_t)schema->return_count + 1, sizeof *op->return_alias);
  op->return_is_list = calloc((size_t)schema->return_count + 1, sizeof *op->return_is_list);
  for (int32_t i = 0; i < schema->return_count; i++) {
    op->return_alias[i] = schema->return_alias[i];
    if (op->return_alias[i] >= 0 && op->return_alias[i] < op->arg_count) {
      op->args[op->return_alias[i]].is_written = true;
    }
    op->return_is_list[i] = schema->return_is_list[i];
  }
  op->mutated_list = schema->mutated_list;
  op->is_generated = schema->is_generated;
  op->out_dtype = schema->is_generated ? TT_OUT_EXACT : rule->out_dtype;
  return op;
}

bool tt_op_arg_is_operand(const tt_op *op, int32_t i) { return i >= 0 && i < op->arg_count && op->args[i].is_operand; }

int32_t tt_op_mutated_list(const tt_op *op) { return op->mutated_list; }
bool tt_op_arg_is_apart(const tt_op *op, int32_t i) { return i >= 0 && i < op->arg_count && op->args[i].is_apart; }

int32_t tt_op_arg_known(const tt_op_arg *arg, const tt_number *number) {
  if (number->type == TT_C128 || (!arg->has_default && !arg->special_count)) {
    return 0;
  }
  double value = tt_number_double(number);
  if (arg->has_default && value == arg->default_value) {
    return 1;
  }
  for (int32_t i = 0; i < arg->special_count; i++) {
    if (value == arg->special[i]) {
      return 2 + i;
    }
  }
  return 0;
}
