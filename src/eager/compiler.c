// The thread that compiles stretches in the background.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "eager/explain.h"
#include "eager/fused.h"

typedef struct request {
  struct request *next;
  tt_engine *engine;
  tt_node *node;
  tt_variant *variant;
  uint64_t generation;  // of the trie: at another one the node is gone
  tt_stretch *stretch;
} request;

enum { ABSENT_LIMIT = 16 };  // then the cache knows nothing of this program

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  tt_thread *thread;
  request *first, *last;
  bool busy, stopping;
  atomic_int absent;  // programs in a row that were looked for in the cache at their first meeting, and weren't there
} compiler = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const tt_rule_entry fused_rule = {.name = "tpu::fused"};
static const tt_op fused_op = {.rule = &fused_rule, .name = "tpu::fused", .short_name = "fused", .mutated_list = -1};

static void free_request(request *r) {
  tt_stretch_free(r->stretch);
  free(r);
}

// "fused 23: embedding ... add_"
static char *title_of(const tt_stretch *stretch) {
  tt_strbuf text = {0};
  tt_strbuf_printf(&text, "fused %d: %s ... %s", stretch->count, stretch->records[0]->op->short_name,
                   stretch->records[stretch->count - 1]->op->short_name);
  if (text.failed) {
    tt_strbuf_free(&text);
    return NULL;
  }
  return text.data;
}

// Whether the stretch was met again. If not, the variant is as new: nothing is compiled for what may never come back.
static bool is_wanted(const request *r) {
  pthread_mutex_lock(&r->engine->lock);
  bool current = r->engine->tape.trie.generation == r->generation;
  bool wanted = current && r->variant->seen >= 2;
  if (current && !wanted) {
    r->variant->state = TT_VARIANT_NEW;
  }
  pthread_mutex_unlock(&r->engine->lock);
  return wanted;
}

// The executable of a program: from the cache, else compiled if the stretch is wanted. `*out_made` false: it isn't.
static tt_status *make_executable(const request *r, tt_record *record, bool *out_made) {
  tt_background_load();
  TT_TRY(tt_record_load(record, r->engine, out_made));
  if (*out_made) {
    atomic_store(&compiler.absent, 0);
    return NULL;
  }
  *out_made = is_wanted(r);
  if (!*out_made) {
    atomic_fetch_add(&compiler.absent, 1);
    return NULL;
  }
  tt_background_begin();
  record->stretch = r->stretch;
  tt_status *status = tt_record_compile(record, r->engine);
  record->stretch = NULL;
  tt_background_end();
  return status;
}

static tt_status *build(const request *r, tt_record **out_record, bool *out_made) {
  tt_record *record = *out_record = calloc(1, sizeof *record);
  *out_made = true;
  if (!record) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  atomic_init(&record->refs, 1);
  record->op = &fused_op;
  record->title = title_of(r->stretch);
  tt_status *status = tt_stretch_lower(r->stretch, tt_the_runtime.is_cpu, &record->lowered);
  if (!status && record->lowered.text) {
    status = make_executable(r, record, out_made);
    free(record->lowered.text);
    record->lowered.text = NULL;
  }
  if (status || !*out_made) {
    tt_record_unref(record);
    *out_record = NULL;
  }
  return status;
}

static void serve(request *r) {
  tt_record *record;
  bool made;
  tt_status *status = build(r, &record, &made);
  tt_explain_place();
  if (status) {
    TT_LOG(WARN, "%d operators stay unfused: %s", r->stretch->count, tt_status_message(status));
    tt_status_free(status);
  }
  if (made) {
    pthread_mutex_lock(&r->engine->lock);
    bool current = r->engine->tape.trie.generation == r->generation;
    if (current && record) {
      r->engine->tape.trie.programs++;
      tt_node_ready(r->node, r->variant, record);
      record = NULL;
    } else if (current) {
      r->variant->state = TT_VARIANT_FAILED;
    }
    pthread_mutex_unlock(&r->engine->lock);
  }
  tt_record_unref(record);
  free_request(r);
}

static void run(void *argument) {
  (void)argument;
  tt_locate_never();
  pthread_mutex_lock(&compiler.lock);
  while (!compiler.stopping) {
    request *r = compiler.first;
    if (!r) {
      pthread_cond_wait(&compiler.changed, &compiler.lock);
      continue;
    }
    compiler.first = r->next;
    compiler.last = r->next ? compiler.last : NULL;
    compiler.busy = true;
    pthread_mutex_unlock(&compiler.lock);
    serve(r);
    pthread_mutex_lock(&compiler.lock);
    compiler.busy = false;
    pthread_cond_broadcast(&compiler.changed);
  }
  pthread_mutex_unlock(&compiler.lock);
}

// ---- the process' end ----
// What LLVM needs while it compiles it makes, and registers for destruction, when it first needs it: in the middle of
// some compile, so that an exit handler of ours comes too late. Before any handler, exit() destroys the thread-local
// objects of the thread that calls it, which is the first one but in odd programs.
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

static void stop_at_end(void *unused) {
  (void)unused;
  tt_cache_stop(tt_the_runtime.cache);
  tt_compiler_stop();
}

static void stop_with_first_thread(void) {
  static _Thread_local bool known;
  if (!known && tt_thread_id() == getpid()) {
    known = true;
    __cxa_thread_atexit_impl(stop_at_end, NULL, &__dso_handle);
  }
}

// ---- requests ----
bool tt_compiler_looks(void) {
  return atomic_load_explicit(&compiler.absent, memory_order_relaxed) < ABSENT_LIMIT &&
         tt_cache_is_on(tt_the_runtime.cache);
}

tt_status *tt_compiler_request(tt_engine *engine, tt_node *node, tt_variant *variant, tt_stretch *stretch) {
  request *r = malloc(sizeof *r);
  if (!r) {
    tt_stretch_free(stretch);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  stop_with_first_thread();
  *r = (request){NULL, engine, node, variant, engine->tape.trie.generation, stretch};
  tt_status *status = NULL;
  pthread_mutex_lock(&compiler.lock);
  if (!compiler.thread && !compiler.stopping) {
    atexit(tt_compiler_stop);  // where another thread calls exit(); mostly after what the plugin registers
    status = tt_thread_create("tpu-compile", 0, run, NULL, &compiler.thread);
  }
  if (!status && !compiler.stopping) {
    *(compiler.last ? &compiler.last->next : &compiler.first) = r;
    compiler.last = r;
    r = NULL;
    pthread_cond_broadcast(&compiler.changed);
  }
  pthread_mutex_unlock(&compiler.lock);
  if (r) {
    free_request(r);
  }
  return status;
}

void tt_compiler_stop(void) {
  if (tt_in_bad_fork()) {
    return;  // the thread is the parent's, the locks are as they were
  }
  pthread_mutex_lock(&compiler.lock);
  compiler.stopping = true;
  tt_thread *thread = compiler.thread;
  compiler.thread = NULL;
  pthread_cond_broadcast(&compiler.changed);
  pthread_mutex_unlock(&compiler.lock);
  tt_background_wait(true);
  tt_thread_join(thread);
  tt_background_wait(false);
  for (request *r = compiler.first, *next; r; r = next) {
    next = r->next;
    free_request(r);
  }
  compiler.first = compiler.last = NULL;
}

void tt_wait_for_compiles(void) {
  if (tt_in_bad_fork()) {
    return;
  }
  tt_background_wait(true);
  pthread_mutex_lock(&compiler.lock);
  while ((compiler.first || compiler.busy) && compiler.thread) {
    pthread_cond_wait(&compiler.changed, &compiler.lock);
  }
  pthread_mutex_unlock(&compiler.lock);
  tt_background_wait(false);
}
