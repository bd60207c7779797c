// Large blocks of an XLA:CPU plugin, kept after they are freed.
//
// XLA:CPU takes the memory of each result and of each program's temporaries from posix_memalign() and gives it back
// after use. For large blocks the C library asks the system each time, whose pages come zeroed, one fault for each. The
// pool stands between: the plugin's own references to posix_memalign, aligned_alloc, realloc and free are led here, so
// that no other code of the process is touched. What is no block of the pool goes to the C library as before.
#ifndef TORCHTPU_PJRT_HOST_POOL_H
#define TORCHTPU_PJRT_HOST_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TT_HOST_POOL_ALIGNMENT = 64 };

typedef struct tt_host_pool_stats {
  size_t used, kept;  // bytes in blocks that are taken; in free ones that still have their memory
} tt_host_pool_stats;

// Leads the references of the shared library `library` (from dlopen, never to be closed) to the pool, which holds on to
// free blocks only while it has no more than half of `memory` bytes. False, and nothing is changed, where that can't be
// done or TORCH_TPU_HOST_POOL=0 forbids it.
bool tt_host_pool_attach(void *library, int64_t memory);
// Whether the library is told, in the calling thread, that there is one processor: where it asks how many may help.
void tt_host_pool_one_processor(bool on);
void tt_host_pool_trim(void);  // gives the memory of free blocks back to the system
tt_host_pool_stats tt_host_pool_read(void);

// The allocator itself.
bool tt_host_pool_open(int64_t memory);       // once; false: no addresses to be had
void *tt_host_pool_alloc(size_t size);        // 64-byte aligned; NULL: take it elsewhere
bool tt_host_pool_free(void *block);          // false: not the pool's
size_t tt_host_pool_size(const void *block);  // what may be written; 0: not the pool's

#endif  // TORCHTPU_PJRT_HOST_POOL_H
