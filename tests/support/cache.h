// For tests of the compile cache: a directory of its own for each test, and sessions on the fake plugin.
#ifndef TORCHTPU_TESTS_SUPPORT_CACHE_H
#define TORCHTPU_TESTS_SUPPORT_CACHE_H

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/internal.h"
#include "fake_pjrt/control.h"
#include "torchtpu/torchtpu.h"

#define CACHE_UNUSED __attribute__((unused))

static const char program[] =
    "module @m {\n"
    "  func.func public @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2x3xf32> {\n"
    "    return %a : tensor<2x3xf32>\n"
    "  }\n"
    "}\n";
static const char version[] = "1.0";

static char root[256], directory[300];
static pid_t root_owner;

CACHE_UNUSED static int remove_visited(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  return remove(path);
}

CACHE_UNUSED static void remove_root(void) {
  if (getpid() == root_owner) {
    nftw(root, remove_visited, 16, FTW_DEPTH | FTW_PHYS);
  }
}

CACHE_UNUSED static void make_root(void) {
  fake_open();  // skips the test here, not in a child of it
  if (*root) {
    nftw(root, remove_visited, 16, FTW_DEPTH | FTW_PHYS);
  } else {
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/tt_cache_XXXXXX", parent ? parent : "/tmp");
    REQUIRE(mkdtemp(root) != NULL);
    root_owner = getpid();
    atexit(remove_root);
  }
  mkdir(root, 0700);
  snprintf(directory, sizeof directory, "%s/deep/cache", root);
}

typedef struct session {
  fake_control fake;
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *client;
  tt_cache *cache;
} session;

CACHE_UNUSED static tt_cache_config config_of(const char *path) {
  return (tt_cache_config){.directory = (char *)path,
                           .size_limit = 1 << 20,
                           .lock_timeout_ns = INT64_C(20) * 1000000000,
                           .version = version};
}

CACHE_UNUSED static session begin(const tt_cache_config *config) {
  session s = {.fake = fake_open()};
  REQUIRE_OK(tt_pjrt_plugin_load(s.fake.path, &s.plugin));
  REQUIRE_OK(tt_pjrt_client_create(s.plugin, NULL, &s.client));
  REQUIRE_OK(tt_cache_open(config, s.plugin, s.client, &s.cache));
  return s;
}

CACHE_UNUSED static void end(session *s) {
  tt_cache_free(s->cache);
  tt_pjrt_client_free(s->client);
  tt_pjrt_plugin_free(s->plugin);
  fake_check_empty(&s->fake);
}

CACHE_UNUSED static tt_cache_source compile_text(session *s, const char *text) {
  tt_pjrt_executable *executable = NULL;
  tt_cache_outcome outcome;
  CHECK_OK(tt_cache_compile(s->cache, &(tt_cache_module){text, strlen(text), NULL, NULL, 0}, &executable, &outcome));
  if (executable) {
    CHECK_INT(tt_pjrt_executable_result_count(executable), 1);
    CHECK_INT(tt_pjrt_executable_device(executable), 0);
  }
  tt_pjrt_executable_free(s->client, executable);
  return outcome.source;
}
CACHE_UNUSED static tt_cache_source compile_it(session *s) { return compile_text(s, program); }

// A program like no other; `size` more bytes of text make its entry larger.
CACHE_UNUSED static tt_cache_source compile_number(session *s, int number, int size) {
  tt_strbuf text = {0};
  tt_strbuf_printf(&text, "%s// %d %0*d\n", program, number, size, 0);
  tt_cache_source source = compile_text(s, tt_strbuf_text(&text));
  tt_strbuf_free(&text);
  return source;
}

CACHE_UNUSED static tt_cache_stats stats_of(const session *s) {
  tt_cache_stats stats;
  tt_cache_get_stats(s->cache, &stats);
  return stats;
}

// The one entry's path.
static char entry_path[512];
CACHE_UNUSED static int find_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  if (strstr(path, ".entry")) {
    snprintf(entry_path, sizeof entry_path, "%s", path);
  }
  return 0;
}
CACHE_UNUSED static const char *the_entry(const char *path) {
  *entry_path = '\0';
  nftw(path, find_entry, 16, FTW_PHYS);
  return entry_path;
}

CACHE_UNUSED static tt_cache_summary inspect(tt_cache_action action) {
  tt_cache_summary summary;
  CHECK_OK(tt_compile_cache_inspect(directory, action, NULL, NULL, &summary));
  return summary;
}

#endif  // TORCHTPU_TESTS_SUPPORT_CACHE_H
