// Who waits for a compile decides with what priority it is made.
//
// XLA:CPU makes machine code in a pool of threads that it starts at its first compile and has for all of them. Those
// that somebody waits for need it at normal priority, what is compiled in the background must not take the program's
// time: so the pool's priority changes with what is being compiled.
#include <sys/prctl.h>

#include "base/priority.h"
#include "base/thread.h"
#include "eager/fused.h"

enum { MOST_THREADS = 64, NAME_SIZE = 16 };
// With both of two processors busy all the time an idle thread gets less than a hundredth of one.
static const int64_t patience_ns = INT64_C(10) * 1000 * 1000 * 1000;
static const char pool_name[NAME_SIZE] = "tpu-codegen";

typedef enum manner { PROMPT, MODEST, QUIET } manner;

static struct {
  tt_mutex lock;
  bool searched;                         // for the pool's threads
  int64_t pool[MOST_THREADS], compiler;  // compiler: 0 while nothing is compiled in the background
  int32_t pool_count;
  int32_t foreground, waiters;  // compiles that somebody waits for; those who wait for what is in the background
  manner manner;
} background = {.lock = TT_MUTEX_INIT};
static atomic_int_fast64_t began_ns;  // of what is compiled in the background, while it is in no hurry; else 0

// ---- manners ----
static void apply(manner manner) {
  if (manner == background.manner) {
    return;
  }
  background.manner = manner;
  if (!tt_priority_can_rise()) {
    return;  // the pool is needed at normal priority again, so it keeps it
  }
  static const tt_priority of_pool[] = {TT_PRIORITY_NORMAL, TT_PRIORITY_LOW, TT_PRIORITY_IDLE},
                           of_compiler[] = {TT_PRIORITY_LOW, TT_PRIORITY_LOW, TT_PRIORITY_IDLE};
  for (int32_t i = 0; i < background.pool_count; i++) {
    tt_priority_set(background.pool[i], of_pool[manner]);
  }
  if (background.compiler) {
    tt_priority_set(background.compiler, of_compiler[manner]);
  }
}

static void choose(void) {
  bool hurry = !background.compiler || background.foreground || background.waiters;
  apply(hurry ? PROMPT : atomic_load(&began_ns) ? QUIET : MODEST);
}

// ---- compiles that somebody waits for ----
void tt_foreground_begin(tt_compile_scope *scope) {
  tt_mutex_lock(&background.lock);
  background.foreground++;
  scope->renamed = !background.searched;
  choose();
  tt_mutex_unlock(&background.lock);
  if (scope->renamed) {  // threads inherit the name of the one that starts them
    prctl(PR_GET_NAME, scope->name);
    prctl(PR_SET_NAME, pool_name);
  }
}

void tt_foreground_end(const tt_compile_scope *scope, bool compiled) {
  if (scope->renamed) {
    prctl(PR_SET_NAME, scope->name);
  }
  tt_mutex_lock(&background.lock);
  background.foreground--;
  if (compiled && !background.searched && !background.foreground) {  // else somebody else has that name, too
    int32_t count = tt_threads_named(pool_name, background.pool, MOST_THREADS);
    background.pool_count = count < MOST_THREADS ? count : MOST_THREADS;
    background.searched = true;
  }
  choose();
  tt_mutex_unlock(&background.lock);
}

// ---- those in the background ----
static bool has_pool(void) {
  tt_mutex_lock(&background.lock);
  bool started = background.searched;
  tt_mutex_unlock(&background.lock);
  return started;
}

// The pool takes its priority from the thread that compiles first: where all so far was loaded, that would be this one.
static void start_pool(void) {
  if (has_pool()) {
    return;
  }
  static const char text[] =
      "module {\n  func.func public @main() -> tensor<i32> {\n    %0 = stablehlo.constant dense<0> : tensor<i32>\n"
      "    return %0 : tensor<i32>\n  }\n}\n";
  tt_compile_scope scope;
  tt_pjrt_executable *executable;
  tt_foreground_begin(&scope);
  tt_status *status = tt_pjrt_compile(tt_the_runtime.client, text, sizeof text - 1, NULL, 0, &executable);
  tt_foreground_end(&scope, !status);
  if (!status) {
    tt_pjrt_executable_free(tt_the_runtime.client, executable);
  }
  tt_status_free(status);
}

void tt_background_load(void) {
  if (has_pool()) {
    tt_priority_set(tt_thread_id(), TT_PRIORITY_LOW);
  }
}

void tt_background_begin(void) {
  start_pool();
  tt_mutex_lock(&background.lock);
  background.compiler = tt_thread_id();
  tt_priority_set(background.compiler, TT_PRIORITY_LOW);
  atomic_store(&began_ns, tt_now_ns());
  choose();
  tt_mutex_unlock(&background.lock);
}

void tt_background_end(void) {
  tt_mutex_lock(&background.lock);
  atomic_store(&began_ns, 0);
  apply(PROMPT);
  background.compiler = 0;
  tt_mutex_unlock(&background.lock);
}

void tt_background_wait(bool begin) {
  tt_mutex_lock(&background.lock);
  background.waiters += begin ? 1 : -1;
  choose();
  tt_mutex_unlock(&background.lock);
}

void tt_background_look(void) {
  int64_t began = atomic_load_explicit(&began_ns, memory_order_relaxed);
  if (began && tt_now_ns() - began > patience_ns) {
    tt_mutex_lock(&background.lock);
    atomic_store(&began_ns, 0);
    choose();
    tt_mutex_unlock(&background.lock);
  }
}
