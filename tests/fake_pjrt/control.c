// Settings, counters and injected faults.
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

fake_settings fake_set = {.fail_code = PJRT_Error_Code_INTERNAL, .devices = 1};
fake_counts fake_count;

static const char *const function_names[FAKE_FUNCTION_COUNT] = {
#define FAKE_NAME(name) #name,
    FAKE_FUNCTIONS(FAKE_NAME)
#undef FAKE_NAME
};
static const size_t function_offsets[FAKE_FUNCTION_COUNT] = {
#define FAKE_OFFSET(name) offsetof(PJRT_Api, name),
    FAKE_FUNCTIONS(FAKE_OFFSET)
#undef FAKE_OFFSET
};
static atomic_llong calls[FAKE_FUNCTION_COUNT], countdown[FAKE_FUNCTION_COUNT];
static atomic_bool missing[FAKE_FUNCTION_COUNT], lying[FAKE_FUNCTION_COUNT];

static const struct {
  const char *name;
  atomic_llong *value;
  long long initial;
} settings[] = {
    {"major", &fake_set.major, 0},
    {"minor", &fake_set.minor, 0},
    {"struct_size", &fake_set.struct_size, 0},
    {"null_api", &fake_set.null_api, 0},
    {"fail_code", &fake_set.fail_code, PJRT_Error_Code_INTERNAL},
    {"fail_execution", &fake_set.fail_execution, 0},
    {"devices", &fake_set.devices, 1},
    {"tpu", &fake_set.tpu, 0},
    {"ones", &fake_set.ones, 0},
    {"execute_delay_us", &fake_set.execute_delay_us, 0},
    {"compile_delay_us", &fake_set.compile_delay_us, 0},
    {"transfer_delay_us", &fake_set.transfer_delay_us, 0},
    {"done_delay_us", &fake_set.done_delay_us, 0},
    {"memory_limit", &fake_set.memory_limit, 0},
    {"temp_bytes", &fake_set.temp_bytes, 0},
    {"unknown_options", &fake_set.unknown_options, 0},
};
enum { SETTING_COUNT = sizeof settings / sizeof *settings };

#define COUNTER(name) {#name, &fake_count.name}
static const struct {
  const char *name;
  atomic_llong *value;
} counters[] = {
    // The first nine are of what lives and survive a reset.
    COUNTER(clients),    COUNTER(buffers),     COUNTER(buffer_bytes),       COUNTER(events),
    COUNTER(errors),     COUNTER(executables), COUNTER(loaded_executables), COUNTER(topologies),
    COUNTER(serialized), COUNTER(compiles),    COUNTER(deserializes),       COUNTER(executes),
    COUNTER(donations),  COUNTER(h2d_bytes),   COUNTER(d2h_bytes),          COUNTER(options),
};
#undef COUNTER
enum { COUNTER_COUNT = sizeof counters / sizeof *counters, LIVE_COUNT = 9 };

static int function_of(const char *name) {
  for (int i = 0; i < FAKE_FUNCTION_COUNT; i++) {
    if (!strcmp(function_names[i], name)) {
      return i;
    }
  }
  return -1;
}

static void reset(void) {
  for (int i = 0; i < FAKE_FUNCTION_COUNT; i++) {
    atomic_store(&calls[i], 0);
    atomic_store(&countdown[i], 0);
    atomic_store(&missing[i], false);
    atomic_store(&lying[i], false);
  }
  for (int i = 0; i < SETTING_COUNT; i++) {
    atomic_store(settings[i].value, settings[i].initial);
  }
  for (int i = LIVE_COUNT; i < COUNTER_COUNT; i++) {
    atomic_store(counters[i].value, 0);
  }
}

static int control_function(const char *what, size_t what_size, int function, int64_t value) {
  if (function < 0) {
    return -1;
  }
  if (what_size == 4 && !memcmp(what, "fail", 4)) {
    atomic_store(&countdown[function], value);
  } else if (what_size == 7 && !memcmp(what, "missing", 7)) {
    atomic_store(&missing[function], value != 0);
  } else if (what_size == 3 && !memcmp(what, "lie", 3)) {
    atomic_store(&lying[function], value != 0);
  } else {
    return -1;
  }
  return 0;
}

FAKE_EXPORT int fake_pjrt_control(const char *key, int64_t value);
FAKE_EXPORT int fake_pjrt_control(const char *key, int64_t value) {
  const char *colon = strchr(key, ':');
  if (colon) {
    return control_function(key, (size_t)(colon - key), function_of(colon + 1), value);
  }
  if (!strcmp(key, "reset")) {
    reset();
    return 0;
  }
  for (int i = 0; i < SETTING_COUNT; i++) {
    if (!strcmp(settings[i].name, key)) {
      atomic_store(settings[i].value, value);
      return 0;
    }
  }
  return -1;
}

FAKE_EXPORT int64_t fake_pjrt_get(const char *name);
FAKE_EXPORT int64_t fake_pjrt_get(const char *name) {
  if (!strncmp(name, "calls:", 6)) {
    int function = function_of(name + 6);
    return function < 0 ? -1 : atomic_load(&calls[function]);
  }
  for (int i = 0; i < COUNTER_COUNT; i++) {
    if (!strcmp(counters[i].name, name)) {
      return atomic_load(counters[i].value);
    }
  }
  return -1;
}

// True for the call that a countdown reaches zero at, and for every call under a negative one.
static bool counts_down(atomic_llong *count) {
  long long now = atomic_load(count);
  while (now > 0) {
    if (atomic_compare_exchange_weak(count, &now, now - 1)) {
      return now == 1;
    }
  }
  return now < 0;
}

PJRT_Error *fake_enter(fake_function function) {
  atomic_fetch_add(&calls[function], 1);
  if (!counts_down(&countdown[function])) {
    return NULL;
  }
  return fake_error((PJRT_Error_Code)atomic_load(&fake_set.fail_code), "injected failure of %s",
                    function_names[function]);
}

bool fake_lies(fake_function function) { return atomic_load(&lying[function]); }
bool fake_execution_fails(void) { return counts_down(&fake_set.fail_execution); }

// ---- errors ----
struct PJRT_Error {
  PJRT_Error_Code code;
  size_t size;
  char message[];
};

PJRT_Error *fake_error(PJRT_Error_Code code, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  size_t size = strlen(text);
  // Exactly the text, without a terminator: a reader that runs past it is caught by ASan.
  PJRT_Error *error = malloc(sizeof *error + size);
  if (!error) {
    abort();
  }
  error->code = code;
  error->size = size;
  memcpy(error->message, text, size);
  atomic_fetch_add(&fake_count.errors, 1);
  return error;
}

void fake_PJRT_Error_Destroy(PJRT_Error_Destroy_Args *args) {
  fake_enter(FAKE_PJRT_Error_Destroy);
  if (args->error) {
    atomic_fetch_sub(&fake_count.errors, 1);
    free(args->error);
  }
}

void fake_PJRT_Error_Message(PJRT_Error_Message_Args *args) {
  bool lies = fake_lies(FAKE_PJRT_Error_Message);
  args->message = lies ? NULL : args->error->message;
  args->message_size = lies ? SIZE_MAX : args->error->size;
}

PJRT_Error *fake_PJRT_Error_GetCode(PJRT_Error_GetCode_Args *args) {
  ENTER(PJRT_Error_GetCode);
  args->code = args->error->code;
  return NULL;
}

// ---- the table ----
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct table {
  struct table *previous;
  PJRT_Api api;
} *tables;  // a caller may hold any of them, so they all live on

static void read_environment(void) {
  for (int i = 0; i < SETTING_COUNT; i++) {
    char name[64] = "FAKE_PJRT_";
    size_t length = strlen(name);
    for (const char *c = settings[i].name; *c; c++) {
      name[length++] = (char)toupper((unsigned char)*c);
    }
    const char *value = getenv(name);
    if (value) {
      atomic_store(settings[i].value, strtoll(value, NULL, 0));
    }
  }
}

static void build_table(PJRT_Api *out_api) {
  memset(out_api, 0, sizeof *out_api);
  long long major = atomic_load(&fake_set.major), minor = atomic_load(&fake_set.minor),
            size = atomic_load(&fake_set.struct_size);
  out_api->struct_size = size ? (size_t)size : PJRT_Api_STRUCT_SIZE;
  out_api->pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  out_api->pjrt_api_version.major_version = major ? (int)major : PJRT_API_MAJOR;
  out_api->pjrt_api_version.minor_version = minor ? (int)minor : PJRT_API_MINOR;
#define FAKE_FILL(name) out_api->name = fake_##name;
  FAKE_FUNCTIONS(FAKE_FILL)
#undef FAKE_FILL
  for (int i = 0; i < FAKE_FUNCTION_COUNT; i++) {
    if (atomic_load(&missing[i])) {
      memset((char *)out_api + function_offsets[i], 0, sizeof(void *));
    }
  }
}

FAKE_EXPORT const PJRT_Api *GetPjrtApi(void);
FAKE_EXPORT const PJRT_Api *GetPjrtApi(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_environment);
  if (atomic_load(&fake_set.null_api)) {
    return NULL;
  }
  pthread_mutex_lock(&table_lock);
  PJRT_Api now;
  build_table(&now);
  struct table *table = tables;
  while (table && memcmp(&table->api, &now, sizeof now)) {
    table = table->previous;
  }
  if (!table) {
    table = malloc(sizeof *table);
    if (!table) {
      abort();
    }
    *table = (struct table){.previous = tables, .api = now};
    tables = table;
  }
  pthread_mutex_unlock(&table_lock);
  return &table->api;
}

PJRT_Error *fake_PJRT_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  ENTER(PJRT_Plugin_Initialize);
  return NULL;
}

PJRT_Error *fake_PJRT_Plugin_Attributes(PJRT_Plugin_Attributes_Args *args) {
  ENTER(PJRT_Plugin_Attributes);
  args->attributes = NULL;
  args->num_attributes = 0;
  return NULL;
}
