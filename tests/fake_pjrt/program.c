// Reads what the fake needs to know of a program: the types of main's parameters and results, which parameters are
// donated, and the device of the compile options.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const struct {
  const char *name;
  PJRT_Buffer_Type type;
  size_t bytes;
} types[] = {
    {"i1", PJRT_Buffer_Type_PRED, 1},
    {"i8", PJRT_Buffer_Type_S8, 1},
    {"i16", PJRT_Buffer_Type_S16, 2},
    {"i32", PJRT_Buffer_Type_S32, 4},
    {"i64", PJRT_Buffer_Type_S64, 8},
    {"ui8", PJRT_Buffer_Type_U8, 1},
    {"ui16", PJRT_Buffer_Type_U16, 2},
    {"ui32", PJRT_Buffer_Type_U32, 4},
    {"ui64", PJRT_Buffer_Type_U64, 8},
    {"f16", PJRT_Buffer_Type_F16, 2},
    {"bf16", PJRT_Buffer_Type_BF16, 2},
    {"f32", PJRT_Buffer_Type_F32, 4},
    {"f64", PJRT_Buffer_Type_F64, 8},
    {"complex<f32>", PJRT_Buffer_Type_C64, 8},
    {"complex<f64>", PJRT_Buffer_Type_C128, 16},
    {"f8E4M3FN", PJRT_Buffer_Type_F8E4M3FN, 1},
    {"f8E5M2", PJRT_Buffer_Type_F8E5M2, 1},
};
enum { TYPE_COUNT = sizeof types / sizeof *types };

size_t fake_type_bytes(PJRT_Buffer_Type type) {
  for (int i = 0; i < TYPE_COUNT; i++) {
    if (types[i].type == type) {
      return types[i].bytes;
    }
  }
  return 0;
}

typedef struct reader {
  const char *at, *end;
} reader;

static void skip_space(reader *in) {
  while (in->at < in->end && isspace((unsigned char)*in->at)) {
    in->at++;
  }
}

static bool accept(reader *in, const char *text) {
  skip_space(in);
  size_t length = strlen(text);
  if ((size_t)(in->end - in->at) < length || memcmp(in->at, text, length)) {
    return false;
  }
  in->at += length;
  return true;
}

static bool read_int(reader *in, int64_t *out_value) {
  const char *start = in->at;
  int64_t value = 0;
  while (in->at < in->end && isdigit((unsigned char)*in->at)) {
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *in->at - '0', &value)) {
      return false;
    }
    in->at++;
  }
  *out_value = value;
  return in->at > start;
}

// "tensor<4x8xf32>"
static bool read_type(reader *in, fake_type *out_type) {
  *out_type = (fake_type){.alias = -1};
  if (!accept(in, "tensor<")) {
    return false;
  }
  int64_t count = 1, dim;
  while (in->at < in->end && isdigit((unsigned char)*in->at)) {
    if (out_type->rank == FAKE_MAX_RANK || !read_int(in, &dim) || __builtin_mul_overflow(count, dim, &count) ||
        in->at == in->end || *in->at++ != 'x') {
      return false;
    }
    out_type->dims[out_type->rank++] = dim;
  }
  for (int i = 0; i < TYPE_COUNT; i++) {
    reader ahead = *in;
    if (accept(&ahead, types[i].name) && accept(&ahead, ">")) {
      *in = ahead;
      int64_t size;
      if (__builtin_mul_overflow(count, (int64_t)types[i].bytes, &size)) {
        return false;
      }
      out_type->type = types[i].type;
      out_type->size = (size_t)size;
      return true;
    }
  }
  return false;
}

// Skips to the ',' or ')' that ends a parameter or result; `*out_text` is what lies between.
static bool skip_attributes(reader *in, reader *out_text) {
  out_text->at = in->at;
  int depth = 0;
  bool quoted = false;
  for (; in->at < in->end; in->at++) {
    char c = *in->at;
    if (quoted) {
      in->at += c == '\\' && in->at + 1 < in->end;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (!depth && (c == ',' || c == ')')) {
      out_text->end = in->at;
      return true;
    } else {
      depth += c == '{' || c == '(' || c == '[' || c == '<';
      depth -= c == '}' || c == ')' || c == ']' || (c == '>' && in->at[-1] != '-');
    }
  }
  return false;
}

static void read_donation(reader text, fake_type *parameter) {
  size_t size = (size_t)(text.end - text.at);
  const char *alias = memmem(text.at, size, "tf.aliasing_output", 18);
  parameter->donor = alias || memmem(text.at, size, "jax.buffer_donor", 16);
  if (alias) {
    reader number = {alias + 18, text.end};
    int64_t value;
    if (accept(&number, "=")) {
      skip_space(&number);
      parameter->alias = read_int(&number, &value) ? (int)value : -1;
    }
  }
}

static bool add_type(fake_type **list, size_t *count, const fake_type *type) {
  fake_type *longer = realloc(*list, (*count + 1) * sizeof *longer);
  if (!longer) {
    return false;
  }
  longer[(*count)++] = *type;
  *list = longer;
  return true;
}

// The list after '(' up to and with ')'.
static bool read_list(reader *in, bool named, fake_type **list, size_t *count) {
  if (accept(in, ")")) {
    return true;
  }
  do {
    fake_type type;
    reader attributes;
    if (named) {
      const char *colon = memchr(in->at, ':', (size_t)(in->end - in->at));
      if (!colon || !accept(in, "%")) {
        return false;
      }
      in->at = colon + 1;
    }
    if (!read_type(in, &type) || !skip_attributes(in, &attributes)) {
      return false;
    }
    read_donation(attributes, &type);
    if (!add_type(list, count, &type)) {
      return false;
    }
  } while (accept(in, ","));
  return accept(in, ")");
}

static bool read_main(fake_program *program) {
  reader in = {program->text, program->text + program->text_size};
  in.at = memmem(program->text, program->text_size, "@main", 5);
  if (!in.at) {
    return false;
  }
  in.at += 5;
  if (!accept(&in, "(") || !read_list(&in, true, &program->parameters, &program->parameter_count)) {
    return false;
  }
  if (!accept(&in, "->")) {
    return true;  // no results
  }
  if (accept(&in, "(")) {
    return read_list(&in, false, &program->results, &program->result_count);
  }
  fake_type type;
  return read_type(&in, &type) && add_type(&program->results, &program->result_count, &type);
}

static bool aliases_fit(const fake_program *program) {
  for (size_t i = 0; i < program->parameter_count; i++) {
    int alias = program->parameters[i].alias;
    if (alias >= 0 &&
        ((size_t)alias >= program->result_count || program->results[alias].size != program->parameters[i].size)) {
      return false;
    }
  }
  return true;
}

// Braces and parentheses outside strings are balanced: the coarsest test for broken text.
static bool balanced(const char *text, size_t size) {
  int braces = 0, parentheses = 0;
  bool quoted = false;
  for (size_t i = 0; i < size; i++) {
    if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      braces += (text[i] == '{') - (text[i] == '}');
      parentheses += (text[i] == '(') - (text[i] == ')');
    }
    if (braces < 0 || parentheses < 0) {
      return false;
    }
  }
  return !braces && !parentheses && !quoted;
}

PJRT_Error *fake_program_new(const char *text, size_t size, const char *options, size_t options_size,
                             fake_program **out_program) {
  *out_program = NULL;
  int device_id;
  PJRT_Error *error = fake_options_device(options, options_size, &device_id);
  if (error) {
    return error;
  }
  fake_program *program = calloc(1, sizeof *program);
  if (!program || !(program->text = malloc(size + 1))) {
    abort();
  }
  atomic_init(&program->references, 1);
  memcpy(program->text, text, size);
  program->text[size] = '\0';
  program->text_size = size;
  program->device_id = device_id;
  if (!balanced(text, size) || !read_main(program) || !aliases_fit(program)) {
    fake_program_unref(program);
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "the program can't be parsed");
  }
  program->result_types = calloc(program->result_count + 1, sizeof *program->result_types);
  if (!program->result_types) {
    abort();
  }
  for (size_t i = 0; i < program->result_count; i++) {
    program->result_types[i] = program->results[i].type;
  }
  *out_program = program;
  return NULL;
}

fake_program *fake_program_ref(fake_program *program) {
  atomic_fetch_add(&program->references, 1);
  return program;
}

void fake_program_unref(fake_program *program) {
  if (atomic_fetch_sub(&program->references, 1) == 1) {
    free(program->text);
    free(program->parameters);
    free(program->results);
    free(program->result_types);
    free(program);
  }
}

// ---- compile options ----
static bool read_varint(reader *in, uint64_t *out_value) {
  *out_value = 0;
  for (int shift = 0; shift < 64 && in->at < in->end; shift += 7) {
    uint8_t byte = (uint8_t)*in->at++;
    *out_value |= (uint64_t)(byte & 127) << shift;
    if (!(byte & 128)) {
      return true;
    }
  }
  return false;
}

// Reads one field: a varint into `*out_value`, bytes into `*out_bytes`.
static bool read_field(reader *in, uint64_t *out_field, uint64_t *out_value, reader *out_bytes) {
  uint64_t key, size;
  *out_bytes = (reader){in->at, in->at};
  if (!read_varint(in, &key)) {
    return false;
  }
  *out_field = key >> 3;
  if ((key & 7) == 0) {
    return read_varint(in, out_value);
  }
  if ((key & 7) != 2 || !read_varint(in, &size) || size > (uint64_t)(in->end - in->at)) {
    return false;
  }
  *out_bytes = (reader){in->at, in->at + size};
  in->at += size;
  return true;
}

typedef struct found_options {
  uint64_t replicas, partitions, device_id;
  long long overrides;
} found_options;

static bool read_assignment(reader in, found_options *found) {
  uint64_t field, value = 0;
  reader bytes;
  while (in.at < in.end) {
    if (!read_field(&in, &field, &value, &bytes)) {
      return false;
    }
    if (field == 3 && bytes.at < bytes.end) {
      uint64_t inner;
      reader unused;
      if (!read_field(&bytes, &inner, &found->device_id, &unused) || inner != 1) {
        return false;
      }
    }
  }
  return true;
}

static bool read_build_options(reader in, found_options *found) {
  uint64_t field, value = 0;
  reader bytes;
  while (in.at < in.end) {
    if (!read_field(&in, &field, &value, &bytes)) {
      return false;
    }
    found->replicas = field == 4 ? value : found->replicas;
    found->partitions = field == 5 ? value : found->partitions;
    if (field == 9 && !read_assignment(bytes, found)) {
      return false;
    }
  }
  return true;
}

// An override's name is its first field.
static bool is_known(reader in, reader *out_name) {
  uint64_t field, value = 0;
  int64_t unknown = atomic_load(&fake_set.unknown_options);
  if (!read_field(&in, &field, &value, out_name) || field != 1) {
    return true;
  }
  size_t size = (size_t)(out_name->end - out_name->at);
  return !unknown || (unknown == 1 && !memmem(out_name->at, size, "emitters", 8));
}

PJRT_Error *fake_options_device(const char *options, size_t size, int *out_device) {
  found_options found = {0};
  reader in = {options, options + size}, bytes;
  uint64_t field, value;
  bool good = true;
  while (good && in.at < in.end) {
    good = read_field(&in, &field, &value, &bytes);
    if (good && field == 3) {
      good = read_build_options(bytes, &found);
    }
    found.overrides += good && field == 7;
    if (good && field == 7 && !is_known(bytes, &bytes)) {
      return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "No such compile option: '%.*s'", (int)(bytes.end - bytes.at),
                        bytes.at);
    }
  }
  if (!good) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "the compile options can't be parsed");
  }
  if (!found.replicas || !found.partitions) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "no replicas or no partitions: XLA would abort here");
  }
  atomic_store(&fake_count.options, found.overrides);
  *out_device = (int)found.device_id;
  return NULL;
}
