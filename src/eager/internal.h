// The eager engine's parts. Owner of everything here is the one runtime object.
//
// Locks: `engine.lock` of a device guards its op cache, scalar cache, the values of its storages and the enqueueing
// end of its queue, so that the order in which storages take new values is the order in which programs run. The
// dispatch thread never takes it.
#ifndef TORCHTPU_EAGER_INTERNAL_H
#define TORCHTPU_EAGER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "aten/internal.h"
#include "cache/cache.h"
#include "eager/profile.h"
#include "pjrt/pjrt.h"
#include "torchtpu/torchtpu.h"

// ---- values ----
// An immutable array on a device: a PJRT buffer, or the promise of one that a queued program will fill.
typedef struct tt_value {
  // References of storages, queued programs and caches: TT_VALUE_REF each; and weak ones, of tapes, and one for all
  // the others together: TT_VALUE_WEAK each. These keep the description, not the buffer. One word, so that a step that
  // needs both kinds counts once.
  atomic_uint_fast64_t counts;
  int32_t owners;  // storages and caches only: who may read it later than what is already queued; engine lock
  int32_t device;
  tt_dtype dtype;
  tt_shape shape;  // dims follow the struct
  size_t nbytes;
  uint64_t sequence;  // the program that fills it; 0: filled at birth; TT_HELD: on the tape
  atomic_bool donated;
  tt_pjrt_buffer *buffer;  // written by the dispatch thread before the sequence completes
  tt_status *error;        // instead of a buffer
  // Of the tape, guarded by the engine lock: the stretch in which it has a number; the step before which its last owner
  // let go of it.
  uint64_t stretch, died;
  int32_t number;
  struct tt_value *next;  // among the spare ones
  int64_t dims[];
} tt_value;
#define TT_HELD UINT64_MAX
#define TT_VALUE_REF UINT64_C(1)
#define TT_VALUE_WEAK (UINT64_C(1) << 32)

struct tt_engine;
// What is freed is kept for the next of its kind, up to so many; few where a sanitizer should see what is freed.
#ifdef __SANITIZE_ADDRESS__
enum { TT_SPARE_LIMIT = 4 };
#else
enum { TT_SPARE_LIMIT = 4096 };
#endif

// A value with one reference and no owner. NULL when memory is gone. With the engine lock: from what is spare.
tt_value *tt_value_create_locked(struct tt_engine *engine, tt_dtype dtype, const int64_t *dims, int32_t rank);
tt_value *tt_value_create(int32_t device, tt_dtype dtype, const int64_t *dims, int32_t rank);
// One without data, which no memory stands for: who reads it gets `error`.
tt_value *tt_value_create_phantom(int32_t device, tt_dtype dtype, const int64_t *dims, int32_t rank,
                                  const tt_status *error);
// Takes and drops references, a sum of TT_VALUE_REF and TT_VALUE_WEAK.
static inline void tt_value_take(tt_value *value, uint64_t counts) {
  atomic_fetch_add_explicit(&value->counts, counts, memory_order_relaxed);
}
void tt_value_drop(tt_value *value, uint64_t counts);
void tt_value_drop_locked(struct tt_engine *engine, tt_value *value, uint64_t counts);  // to what is spare
static inline void tt_value_ref(tt_value *value) { tt_value_take(value, TT_VALUE_REF); }
static inline void tt_value_unref(tt_value *value) {  // NULL is allowed
  if (value) {
    tt_value_drop(value, TT_VALUE_REF);
  }
}
// As tt_value_take, of a value that no other thread has seen yet.
static inline void tt_value_take_new(tt_value *value, uint64_t counts) {
  atomic_store_explicit(&value->counts, atomic_load_explicit(&value->counts, memory_order_relaxed) + counts,
                        memory_order_relaxed);
}
// A reference of an owner that is no storage: the value is not donated while it has it. These take the engine lock.
void tt_value_own(tt_value *value);
void tt_value_disown(tt_value *value);     // NULL is allowed
void tt_value_give_away(tt_value *value);  // to a program: its bytes count no more

// ---- storages ----
struct tt_storage {
  int32_t device;
  int32_t size_class;  // of its address range
  size_t nbytes;
  void *address;
  tt_value *value;  // owned; NULL: undefined. Guarded by the engine lock.
  uint64_t call;    // the last call that used it, and its slot there. Guarded by the engine lock.
  int32_t slot;
  struct tt_storage *next;  // among the spare ones
  bool phantom;             // made during a capture: its bytes don't count
};
// Replaces the value; takes ownership of one reference. Caller holds the engine lock.
void tt_storage_set_value(tt_storage *storage, tt_value *value);

// As tt_storage_create. Caller holds the engine lock.
TT_MUST_USE tt_status *tt_storage_create_locked(struct tt_engine *engine, size_t nbytes, tt_storage **out_storage);

// Address ranges: unique among the living, never readable.
enum { TT_VSPACE_CLASSES = 160 };
int32_t tt_vspace_class(size_t nbytes);  // one range of a class will do for another size of it
void *tt_vspace_alloc(size_t nbytes);
void tt_vspace_free(void *address, size_t nbytes);

// ---- records: compiled operators ----
typedef struct tt_record {
  atomic_int refs;
  uint64_t hash;
  uint64_t content;  // a hash that is the same in every process
  uint64_t *key;
  int32_t key_words;
  struct tt_record *next;          // in the cache's bucket
  bool used;                       // since the last sweep
  bool compiled;                   // here, not loaded from elsewhere
  tt_pjrt_executable *executable;  // NULL: nothing to run
  tt_lowered lowered;
  int32_t slot_params;  // how many of lowered.params are values
  bool aliases;         // some of these may be written over
  const tt_op *op;
  char *title;                             // of a fused program: what a person would call it
  const struct tt_stretch *stretch;        // of one that is being compiled
  const tt_pjrt_compile_options *options;  // of one that is being compiled, beside tt_options(); NULL: none
  size_t new_bytes;                        // of the results
  int64_t temp_bytes;
  uint64_t module_hash;  // of the module's text, where that was dumped; or 0
} tt_record;
void tt_record_unref(tt_record *record);
// Compiles the record's module, or finds it in the compile cache: the one way to an executable.
TT_MUST_USE tt_status *tt_record_compile(tt_record *record, const struct tt_engine *engine);
// As that, from the cache alone.
TT_MUST_USE tt_status *tt_record_load(tt_record *record, const struct tt_engine *engine, bool *out_loaded);

// An executable holds several memory mappings, of which a process has 65,530: the cache must stay well below.
enum { TT_OP_CACHE_LIMIT = 4096, TT_RECENT_BITS = 8 };
typedef struct tt_op_cache {
  tt_record **buckets;
  size_t bucket_count, count;
  tt_record *recent[1 << TT_RECENT_BITS];  // by operator: what was found last
} tt_op_cache;
tt_record *tt_op_cache_find(const tt_op_cache *cache, const uint64_t *key, int32_t words, uint64_t hash);
// The operator's record that was noted last, if the key is its: there is no need to hash the key then.
tt_record *tt_op_cache_recent(tt_op_cache *cache, const tt_op *op, const uint64_t *key, int32_t words);
void tt_op_cache_note(tt_op_cache *cache, tt_record *record);
// Takes ownership of the record.
TT_MUST_USE tt_status *tt_op_cache_insert(tt_op_cache *cache, tt_record *record);
void tt_op_cache_clear(tt_op_cache *cache);

// ---- interned scalars ----
enum { TT_SCALAR_BUCKETS = 256, TT_SCALAR_LIMIT = 512 };
typedef struct tt_scalar_cache {
  struct tt_scalar_entry *buckets[TT_SCALAR_BUCKETS];
  int32_t count;
} tt_scalar_cache;

// ---- the queue ----
enum { TT_QUEUE_LENGTH = 256, TT_INLINE_VALUES = 12, TT_INFLIGHT = 32, TT_MAX_PENDING_ASSERTS = 64 };

typedef enum tt_task_kind { TT_TASK_RUN, TT_TASK_EVENT, TT_TASK_FENCE, TT_TASK_STOP } tt_task_kind;
typedef struct tt_task {
  tt_task_kind kind;
  tt_record *record;  // owned reference
  tt_event *event;    // owned reference
  int32_t input_count, output_count;
  tt_value **inputs, **outputs;  // owned references; outputs[i] is NULL for asserts
  bool *donate;
  tt_value *inline_inputs[TT_INLINE_VALUES], *inline_outputs[TT_INLINE_VALUES];
  bool inline_donate[TT_INLINE_VALUES];
  void *heap;  // owned; holds the arrays when they don't fit
  tt_origin origin;
} tt_task;

typedef struct tt_pending_assert {
  tt_pjrt_buffer *flag;
  tt_record *record;  // owned reference
  int32_t index;
} tt_pending_assert;

typedef struct tt_queue {
  tt_task tasks[TT_QUEUE_LENGTH];
  _Alignas(64) atomic_uint_fast64_t pushed;    // tasks enqueued; the next task's sequence is pushed + 1
  _Alignas(64) atomic_uint_fast64_t launched;  // tasks that the dispatch thread is done with
  atomic_int sleeping, waiters;
  atomic_uint_fast64_t read;  // of programs of which the host has a result, the last one that said so
  pthread_mutex_t mutex;
  pthread_cond_t wake, progress;
  pthread_t thread;
  bool running;
  // the dispatch thread's own:
  int spins;          // before it sleeps
  uint64_t last_run;  // the program launched last
  tt_pjrt_event *inflight[TT_INFLIGHT];
  tt_record *inflight_records[TT_INFLIGHT];
  uint32_t inflight_head, inflight_count;
  atomic_bool busy;  // something may still run on the device
  // errors, guarded by mutex:
  tt_pending_assert asserts[TT_MAX_PENDING_ASSERTS];
  int32_t assert_count;
  tt_status *error;  // the first that no synchronisation has raised yet
} tt_queue;

// ---- fused: the tape (fused.h) ----
enum { TT_CUT_RECORDS = 8, TT_CUT_WINDOW = 128, TT_CUT_NEAR = 32, TT_CUT_RING = 512 };
typedef struct tt_cuts {
  uint64_t count;  // steps so far
  uint64_t recent[TT_CUT_RECORDS], rolling;
  uint64_t hashes[TT_CUT_RING];
  uint64_t least[TT_CUT_RING];  // steps of the window, with ascending hashes
  uint32_t head, tail;
} tt_cuts;

typedef struct tt_trie {
  struct tt_node **buckets;
  struct tt_node *first;  // of the steps that begin a stretch, that which was met last; NULL: none yet
  size_t bucket_count, count;
  uint64_t generation;
  int32_t programs;  // compiled, or to be
} tt_trie;

typedef struct tt_literal {
  tt_dtype dtype;
  bool random;  // ui64[2]
  unsigned char bytes[16];
} tt_literal;

// A recorded call. Inputs and outputs in the order of the record's; a NULL input is the next literal, a NULL output an
// assert.
typedef struct tt_step {
  tt_record *record;  // the op cache's, which drops none while there are steps
  bool held;          // not launched: strong references are held, too
  tt_value **inputs, **outputs;
  bool *donate;
  bool *counted;  // inputs to which this step has references of its own; while all steps are held, one step's will do
  tt_literal *literals;
  int32_t *sources;  // numbers of the inputs that are values
  int32_t input_count, output_count, literal_count, source_count;
  char *label;           // owned; NULL: none
  size_t size;           // of all that follows
  struct tt_step *next;  // among the spare ones
} tt_step;
enum { TT_STEP_SIZE = 320 };  // a step takes at least as much, so that most fit where another one was

// TT_SECTION_STEPS: so short a stretch is not ended by another section.
enum {
  TT_STRETCH_LIMIT = 2048,
  TT_SECTION_STEPS = 4,
  TT_VARIANT_LIMIT = 8,
  TT_TRIE_LIMIT = 65536,
  TT_PROGRAM_LIMIT = 1024
};
typedef enum tt_cut_reason {
  TT_CUT_NONE,
  TT_CUT_READ,   // of a value, by the host
  TT_CUT_EVENT,  // was recorded
  TT_CUT_SYNC,
  TT_CUT_CONTENT,  // a place that the program's content chooses
  TT_CUT_UNKNOWN,  // steps were held, and another one came than those that are known
  TT_CUT_LENGTH,
  TT_CUT_MEMORY,
  TT_CUT_MODE,
  TT_CUT_SECTION,  // another thread goes on, or a backward pass begins or ends
  TT_CUT_GRAPH     // a compiled graph follows
} tt_cut_reason;
typedef struct tt_tape {
  tt_step **steps, *spare;
  int32_t count, capacity, spare_count;
  tt_value **values;  // by number; weak references
  int32_t value_count, value_capacity;
  uint64_t stretch;      // its number, from 1
  uint64_t recorded;     // steps so far, of all stretches
  struct tt_node *node;  // of the last step; NULL: the root
  bool known;            // the steps are in the trie
  bool holding;          // none of them was launched
  pthread_t thread;      // that recorded the last step
  int section;           // of the last step
  atomic_bool at_end;    // a known stretch is complete
  size_t held_bytes;
  tt_cuts cuts;
  tt_trie trie;
} tt_tape;

// ---- engine: one a device ----
typedef struct tt_engine {
  int32_t device;
  pthread_mutex_t lock;
  uint64_t calls;
  tt_op_cache cache;
  tt_scalar_cache scalars;
  tt_queue queue;
  tt_tape tape;
  tt_generator *generator;
  // Storages that were freed, with their address ranges, by size class; and the memory of values.
  tt_storage *spare[TT_VSPACE_CLASSES];
  tt_value *spare_values;
  int32_t spare_count, spare_value_count;
  // memory, bytes
  atomic_int_fast64_t reserved, reserved_peak, oom_count;
  // Written under the lock, read without.
  atomic_int_fast64_t allocated, allocated_peak, allocated_total, allocation_count, free_count, hits;
  atomic_int_fast64_t total_mark, freed_mark, allocation_mark, free_mark, oom_mark;  // at the last reset
  int64_t limit;
} tt_engine;

// ---- runtime ----
typedef struct tt_runtime {
  pthread_mutex_t lock;
  atomic_bool initialized, forked, stopped;
  char *tpu_plugin, *cpu_plugin;
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *client;
  tt_cache *cache;  // of compiled modules; exists while the client does
  bool is_cpu, has_host_kernels;
  int32_t device_count;
  tt_engine *engines;  // [device_count]
  atomic_int mode, precision, default_dtype;
  atomic_bool check_nan;
  const char **option_names, **option_values;
  int32_t option_count, own_options;  // the first are not the user's
  atomic_uint skipped_options;        // bit i: the plugin doesn't know the i-th, or the user sets it
  tt_generator **early_generators;    // default generators, made before there is a client
  struct {
    atomic_int_fast64_t compiles, compile_ns, executions, misses, h2d, d2h, h2d_bytes, d2h_bytes, syncs, fallbacks;
  } counters;
} tt_runtime;
extern tt_runtime tt_the_runtime;

// ---- compile options (options.c) ----
TT_MUST_USE tt_status *tt_options_read(void);
void tt_options_free(void);
tt_pjrt_compile_options tt_options(void);
// These and more, which win. What is new is in the arena.
TT_MUST_USE tt_status *tt_options_with(const tt_pjrt_compile_options *more, tt_arena *arena,
                                       tt_pjrt_compile_options *out_options);
// Compiles next to nothing with these options alone. TT_ERR_VALUE where the plugin refuses them.
TT_MUST_USE tt_status *tt_options_check(const tt_pjrt_compile_options *options, int32_t device);
// Whether compiling failed for an option of ours that the plugin doesn't know: it is left out from now on.
bool tt_options_drop(const tt_pjrt_compile_options *used, const tt_status *status);

static inline bool tt_runtime_ready(void) {
  return atomic_load_explicit(&tt_the_runtime.initialized, memory_order_acquire) &&
         !atomic_load_explicit(&tt_the_runtime.forked, memory_order_relaxed);
}
// The engine of a device; initialises.
TT_MUST_USE tt_status *tt_engine_of(int32_t device, tt_engine **out_engine);
static inline void tt_count(atomic_int_fast64_t *counter, int64_t by) {
  atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}
// The same of what only the holder of the engine lock writes: no other processor has to be asked.
static inline int64_t tt_count_locked(atomic_int_fast64_t *counter, int64_t by) {
  int64_t sum = atomic_load_explicit(counter, memory_order_relaxed) + by;
  atomic_store_explicit(counter, sum, memory_order_relaxed);
  return sum;
}
void tt_memory_add(atomic_int_fast64_t *now, atomic_int_fast64_t *peak, int64_t bytes);
void tt_allocated_add(tt_engine *engine, int64_t bytes);  // engine lock held

TT_MUST_USE tt_status *tt_queue_start(tt_engine *engine);
void tt_queue_stop(tt_engine *engine);
// The next free task, zeroed; waits while the queue is full. Engine lock held from here to tt_queue_push().
tt_task *tt_queue_reserve(tt_engine *engine);
TT_MUST_USE tt_status *tt_task_reserve_values(tt_task *task, int32_t inputs, int32_t outputs);
// Launches what is on the tape, so that the sequence of any value can be waited for. Takes the engine lock.
void tt_tape_settle(tt_engine *engine);
// Lets go of what the task holds.
void tt_task_release(tt_task *task);
uint64_t tt_queue_push(tt_engine *engine);  // returns the task's sequence
// Pushes a task whose inputs and outputs are filled in; it runs `record`.
void tt_queue_push_run(tt_engine *engine, tt_task *task, tt_record *record);
// Waits until the dispatch thread is done with `sequence` (launched it, or failed to).
void tt_queue_wait(tt_engine *engine, uint64_t sequence);
// Waits until everything enqueued so far is complete on the device.
void tt_queue_drain(tt_engine *engine);
// Looks at the device asserts of all launched programs and returns the first error that nobody has raised yet.
TT_MUST_USE tt_status *tt_queue_take_error(tt_engine *engine);
void tt_queue_set_error(tt_queue *queue, tt_status *status);

// Interned 0-d value; a new reference. Engine lock held. `checked`: refuse a value that an integer type can't hold.
TT_MUST_USE tt_status *tt_scalar_value(tt_engine *engine, const tt_number *number, tt_dtype dtype, bool checked,
                                       tt_value **out_value);
void tt_scalar_cache_clear(tt_scalar_cache *cache);
// The interned value of an element's bytes (16, zero behind the element); a new reference. Engine lock held.
TT_MUST_USE tt_status *tt_scalar_intern(tt_engine *engine, const unsigned char *bytes, tt_dtype dtype,
                                        tt_value **out_value);
// As PyTorch says that a number doesn't fit.
TT_MUST_USE tt_status *tt_scalar_overflow(tt_dtype dtype);
// Host bytes to a new value with one reference.
TT_MUST_USE tt_status *tt_value_from_host(tt_engine *engine, const void *data, tt_dtype dtype, const int64_t *dims,
                                          int32_t rank, tt_value **out_value);
// Takes `count` counters from the generator and returns where they start.
int32_t tt_generator_device(const tt_generator *generator);
void tt_generator_take(tt_generator *generator, uint64_t count, uint64_t out_state[2]);

// Room for storages of `nbytes` more, by the budget.
TT_MUST_USE tt_status *tt_allocation_check(tt_engine *engine, size_t nbytes);
// Room for `bytes` more, by the budget; waits for the queue first when there is not. Engine lock held.
TT_MUST_USE tt_status *tt_memory_check(tt_engine *engine, size_t bytes, const char *what);

// Makes the value of the tensor's storage of the tensor's dtype; its sizes become the value's if it covers everything.
// With `out_copy` the storage keeps its value and a new storage, the caller's, gets the other. Takes the engine lock.
TT_MUST_USE tt_status *tt_storage_retype(const tt_tensor *tensor, tt_storage **out_copy);

void tt_event_unref(tt_event *event);
void tt_event_complete_now(tt_event *event);
void tt_event_arm(tt_event *event, tt_pjrt_event *after);

// ---- the tape; engine lock held ----
struct tt_call_state;
TT_MUST_USE tt_status *tt_tape_record(const struct tt_call_state *s, tt_record *record, tt_results *out);
// Ends the stretch: what is held is launched.
void tt_tape_cut(tt_engine *engine, tt_cut_reason reason);
// After a storage let go of its value: launches what waited for that.
void tt_tape_disowned(tt_engine *engine);
// From the dispatch thread when it has nothing to do; takes the lock if that is free.
void tt_tape_poke(tt_engine *engine);
void tt_tape_clear(tt_engine *engine);  // forgets programs
// What a call reads, by its record.
TT_MUST_USE tt_status *tt_call_literal(const struct tt_call_state *s, const tt_record *record, const tt_param *param,
                                       tt_literal *out);
// The literal on the device; a new reference.
TT_MUST_USE tt_status *tt_literal_value(tt_engine *engine, const tt_literal *literal, tt_value **out_value);

// Where TORCH_TPU_DUMP_MODULES names a folder: keeps the module there. Failure is a warning.
void tt_dump_module(tt_record *record, const char *text);  // text: as it is compiled
// Where TORCH_TPU_DUMP_LAUNCHES names a file as well: notes the launch there.
void tt_dump_launch(const tt_record *record);

#endif  // TORCHTPU_EAGER_INTERNAL_H
