// For tests: the fake plugin's controls (tests/fake_pjrt/fake.h says what they mean), and helpers around them.
#ifndef TORCHTPU_TESTS_FAKE_PJRT_CONTROL_H
#define TORCHTPU_TESTS_FAKE_PJRT_CONTROL_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "pjrt/pjrt.h"

typedef struct fake_control {
  const char *path;
  int (*set)(const char *key, int64_t value);
  int64_t (*get)(const char *name);
} fake_control;

// The plugin named by TT_TEST_FAKE_PLUGIN, reset; skips the test where there is none.
__attribute__((unused)) static fake_control fake_open(void) {
  fake_control fake = {.path = getenv("TT_TEST_FAKE_PLUGIN")};
  if (!fake.path) {
    SKIP("TT_TEST_FAKE_PLUGIN is not set");
  }
  void *library = dlopen(fake.path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != NULL);
  void *set = dlsym(library, "fake_pjrt_control"), *get = dlsym(library, "fake_pjrt_get");
  REQUIRE(set && get);
  memcpy(&fake.set, &set, sizeof set);
  memcpy(&fake.get, &get, sizeof get);
  CHECK_INT(fake.set("reset", 0), 0);
  return fake;
}

// Nothing that the plugin made is alive. False, and a failed check, otherwise.
__attribute__((unused)) static bool fake_check_empty(const fake_control *fake) {
  static const char *const names[] = {"clients",   "buffers",     "buffer_bytes",       "events",
                                      "errors",    "executables", "loaded_executables", "topologies",
                                      "serialized"};
  bool empty = true;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (fake->get(names[i])) {
      empty = tt_test_fail(__FILE__, __LINE__, "%lld %s are left", (long long)fake->get(names[i]), names[i]);
    }
  }
  return empty;
}

#endif  // TORCHTPU_TESTS_FAKE_PJRT_CONTROL_H
