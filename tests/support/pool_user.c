// A library whose references to the allocator lie wherever they can: calls, an address in a function, one in its data.
#include <sched.h>
#include <stdlib.h>

#pragma GCC visibility push(default)

void *pool_user_take(size_t size);
void *pool_user_resize(void *pointer, size_t size);
void pool_user_give(void *pointer);
extern void (*const pool_user_giver)(void *pointer);

void *pool_user_take(size_t size) {
  void *pointer;
  return posix_memalign(&pointer, 64, size) ? NULL : pointer;
}
void *pool_user_resize(void *pointer, size_t size) { return realloc(pointer, size); }
void pool_user_give(void *pointer) { free(pointer); }
void (*const pool_user_giver)(void *pointer) = free;
int pool_user_processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? -1 : CPU_COUNT(&set);
}
