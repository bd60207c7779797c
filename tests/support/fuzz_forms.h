// For src/aten/rule_fuzz.c: the operator forms behind the lines of fuzz_schemas.h.
#ifndef TORCHTPU_TESTS_SUPPORT_FUZZ_FORMS_H
#define TORCHTPU_TESTS_SUPPORT_FUZZ_FORMS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aten/internal.h"
#include "support/fuzz_schemas.h"

enum { SCHEMAS = sizeof fuzz_schemas / sizeof *fuzz_schemas, FORMS = 3 };

typedef struct arg {
  char letter;
  bool optional;
} arg;

typedef struct form {
  tt_op *op;
  bool tried;
  int32_t count;
  arg args[TT_MAX_ARGS];
} form;

static form forms[SCHEMAS][FORMS];

static tt_arg_kind kind_of(char letter) {
  static const char letters[] = "TLNMFEIJBDSG";
  static const tt_arg_kind kinds[] = {TT_KIND_TENSOR, TT_KIND_TENSORS, TT_KIND_NUMBER, TT_KIND_NUMBERS,
                                      TT_KIND_FLOAT,  TT_KIND_FLOATS,  TT_KIND_INT,    TT_KIND_INTS,
                                      TT_KIND_BOOL,   TT_KIND_DTYPE,   TT_KIND_STRING, TT_KIND_GENERATOR};
  const char *at = strchr(letters, letter);
  return at && *at ? kinds[at - letters] : TT_KIND_OTHER;
}

// Cuts *text at the separator; NULL at its end.
static char *cut(char **text, char separator) {
  char *start = *text;
  if (!start) {
    return NULL;
  }
  char *end = strchr(start, separator);
  if (end) {
    *end = '\0';
  }
  *text = end ? end + 1 : NULL;
  return start;
}

static void read_args(char *text, form *out, tt_arg_schema *schemas) {
  for (char *at; (at = cut(&text, ',')) && *at && out->count < TT_MAX_ARGS;) {
    arg *one = &out->args[out->count];
    tt_arg_schema *schema = &schemas[out->count++];
    one->letter = *at++;
    one->optional = *at == '?';
    at += one->optional;
    *schema = (tt_arg_schema){.kind = kind_of(one->letter)};
    char *value = strchr(at, '=');
    if (value) {
      *value = '\0';
      schema->has_default = true;
      schema->default_value = (tt_number){.type = TT_F64, .u.f = {strtod(value + 1, NULL)}};
    }
    schema->name = at;
  }
}

// The functional form as the schema says; the in-place one, where the first result is the first argument; the one
// with an out= argument a result.
static void make_form(int index, int which) {
  form *out = &forms[index][which];
  out->tried = true;
  char text[2048], name[160];
  snprintf(text, sizeof text, "%s", fuzz_schemas[index]);
  char *rest = text, *rule = cut(&rest, '|'), *args = cut(&rest, '|'), *returns = cut(&rest, '|'), *mutated = rest;
  tt_arg_schema schemas[TT_MAX_ARGS + 4];
  read_args(args, out, schemas);
  int32_t alias[16], count = 0;
  bool is_list[16] = {false};
  for (char *at; (at = cut(&returns, ',')) && *at && count < 16; count++) {
    alias[count] = *at >= '0' && *at <= '9' ? atoi(at) : -1;
    is_list[count] = *at == 'L' || (alias[count] >= 0 && out->args[alias[count]].letter == 'L');
  }
  static const char *const out_names[] = {"out", "out1", "out2", "out3"};
  if (which == 1) {
    if (!count || alias[0] >= 0 || is_list[0] || out->args[0].letter != 'T') {
      return;
    }
    alias[0] = 0;
  } else if (which == 2) {
    for (int32_t i = 0; i < count; i++) {
      if (count > 4 || alias[i] >= 0 || is_list[i] || out->count == TT_MAX_ARGS) {
        return;
      }
      alias[i] = out->count;
      schemas[out->count] = (tt_arg_schema){.name = out_names[i], .kind = TT_KIND_TENSOR, .is_out = true};
      out->args[out->count++] = (arg){.letter = 'T'};
    }
  }
  snprintf(name, sizeof name, "%.150s%s", rule, which == 1 ? "_" : which == 2 ? "_out" : "");
  tt_op_schema schema = {.name = name,
                         .arg_count = out->count,
                         .args = schemas,
                         .return_count = count,
                         .return_alias = alias,
                         .return_is_list = is_list,
                         .mutated_list = mutated && *mutated ? atoi(mutated) : -1};
  out->op = tt_op_register(rule, &schema);
}

#endif  // TORCHTPU_TESTS_SUPPORT_FUZZ_FORMS_H
