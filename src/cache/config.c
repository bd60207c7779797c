// Settings from the environment.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/internal.h"

static const int64_t default_limit = INT64_C(2) << 30;
static const int64_t default_timeout_ns = INT64_C(600) * 1000000000;

static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

static char *join(const char *folder, const char *name) {
  tt_strbuf path = {0};
  tt_strbuf_printf(&path, "%s/%s", folder, name);
  if (path.failed) {
    tt_strbuf_free(&path);
  }
  return path.data;
}

// The process may change its directory later.
static char *absolute(const char *path) {
  if (*path == '/') {
    return strdup(path);
  }
  char *here = getcwd(NULL, 0);
  char *whole = here ? join(here, path) : NULL;
  free(here);
  return whole;
}

static char *default_directory(void) {
  const char *cache = setting("XDG_CACHE_HOME"), *home = setting("HOME");
  if (cache && *cache == '/') {  // the specification has relative paths ignored
    return join(cache, "torch_tpu/compile");
  }
  return home ? join(home, ".cache/torch_tpu/compile") : NULL;
}

// False for what is no size.
static bool parse_size(const char *text, int64_t *out_size) {
  char *end;
  errno = 0;
  long long count = strtoll(text, &end, 10);
  int shift = 0;
  if (*end) {
    const char *unit = strchr("KkMmGgTt", *end);
    shift = unit ? 10 * (1 + (int)(unit - "KkMmGgTt") / 2) : -1;
    end++;
    end += *end == 'i' || *end == 'I';
    end += *end == 'B' || *end == 'b';
  }
  if (errno || end == text || *end || shift < 0 || count < 0 || count > INT64_MAX >> shift) {
    return false;
  }
  *out_size = (int64_t)count << shift;
  return true;
}

void tt_cache_config_read(tt_cache_config *out_config) {
  *out_config =
      (tt_cache_config){.size_limit = default_limit, .lock_timeout_ns = default_timeout_ns, .version = TT_VERSION};
  const char *size = setting("TORCH_TPU_CACHE_SIZE");
  if (size && !parse_size(size, &out_config->size_limit)) {
    TT_LOG_ONCE(WARN, "TORCH_TPU_CACHE_SIZE=%s is no size (bytes, or a number with K, M or G); 2G is used", size);
  }
  const char *wanted = setting("TORCH_TPU_CACHE");
  if (wanted && !strcmp(wanted, "0")) {
    return;
  }
  const char *directory = setting("TORCH_TPU_CACHE_DIR"), *shared = setting("TORCH_TPU_SHARED_CACHE_DIR");
  out_config->directory = directory ? absolute(directory) : default_directory();
  out_config->shared_directory = shared ? absolute(shared) : NULL;
}

void tt_cache_config_free(tt_cache_config *config) {
  free(config->directory);
  free(config->shared_directory);
  config->directory = config->shared_directory = NULL;
}
