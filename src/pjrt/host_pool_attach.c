// Leads a shared library's references to the C library's allocator to the pool: the slots that the dynamic loader
// filled for it, which no other library reads.
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "pjrt/host_pool.h"

#if defined(__x86_64__)
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#define IS_SLOT(type) false
#endif

// ---- what the library calls instead ----
static void pool_free(void *pointer) {
  if (!tt_host_pool_free(pointer)) {
    free(pointer);
  }
}

static int pool_posix_memalign(void **out, size_t alignment, size_t size) {
  void *block = alignment <= TT_HOST_POOL_ALIGNMENT ? tt_host_pool_alloc(size) : NULL;
  if (block) {
    *out = block;
    return 0;
  }
  return posix_memalign(out, alignment, size);
}

static void *pool_aligned_alloc(size_t alignment, size_t size) {
  void *block = alignment <= TT_HOST_POOL_ALIGNMENT ? tt_host_pool_alloc(size) : NULL;
  return block ? block : aligned_alloc(alignment, size);
}

static void *pool_realloc(void *pointer, size_t size) {
  const size_t had = tt_host_pool_size(pointer);
  if (!had) {
    return realloc(pointer, size);
  }
  void *moved = malloc(size);
  if (moved) {
    memcpy(moved, pointer, had < size ? had : size);
    tt_host_pool_free(pointer);
  }
  return moved;
}

static _Thread_local bool one_processor;
void tt_host_pool_one_processor(bool on) { one_processor = on; }

static int pool_getaffinity(pid_t pid, size_t size, cpu_set_t *out) {
  const int result = sched_getaffinity(pid, size, out);
  if (!result && one_processor) {
    size_t first = 0;
    while (first < 8 * size - 1 && !CPU_ISSET_S(first, size, out)) {
      first++;
    }
    CPU_ZERO_S(size, out);
    CPU_SET_S(first, size, out);
  }
  return result;
}

typedef void (*function)(void);
// What gives back comes before what takes, and all of it must be there.
static const struct {
  const char *name;
  function replacement;  // NULL: a library that refers to it is left alone
  bool needed;
} references[] = {
    {"malloc_usable_size", NULL, false},
    {"reallocarray", NULL, false},
    {"realloc", (function)pool_realloc, false},
    {"free", (function)pool_free, true},
    {"posix_memalign", (function)pool_posix_memalign, false},
    {"aligned_alloc", (function)pool_aligned_alloc, false},
    {"sched_getaffinity", (function)pool_getaffinity, false},
};

// ---- the library's slots ----
typedef struct image {
  uintptr_t base;
  const char *names;
  const ElfW(Sym) * symbols;
  const ElfW(Rela) * tables[2];  // of function calls and of other addresses
  size_t counts[2];
  uintptr_t sealed, sealed_end;  // pages that the loader made read-only
} image;

static int find_sealed(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  image *im = data;
  if (info->dlpi_addr != im->base) {
    return 0;
  }
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
      im->sealed = im->base + info->dlpi_phdr[i].p_vaddr;
      im->sealed_end = im->sealed + info->dlpi_phdr[i].p_memsz;
    }
  }
  return 1;
}

static bool read_image(void *library, image *out) {
  struct link_map *map;
  *out = (image){0};
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) || !map || !map->l_addr) {
    return false;
  }
  out->base = map->l_addr;
  bool rela = false;
  for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
    // Some C libraries relocate these in place, others don't.
    void *at = (void *)(d->d_un.d_ptr < map->l_addr ? d->d_un.d_ptr + map->l_addr : d->d_un.d_ptr);
    switch (d->d_tag) {
      case DT_STRTAB:
        out->names = at;
        break;
      case DT_SYMTAB:
        out->symbols = at;
        break;
      case DT_JMPREL:
        out->tables[0] = at;
        break;
      case DT_RELA:
        out->tables[1] = at;
        break;
      case DT_PLTRELSZ:
        out->counts[0] = d->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELASZ:
        out->counts[1] = d->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_PLTREL:
        rela = d->d_un.d_val == DT_RELA;
        break;
      default:
        break;
    }
  }
  for (int i = 0; i < 2; i++) {
    out->counts[i] = out->tables[i] ? out->counts[i] : 0;
  }
  out->counts[0] = rela ? out->counts[0] : 0;
  dl_iterate_phdr(find_sealed, out);
  return out->names && out->symbols;
}

static bool store(const image *im, function *slot, function value) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)slot & ~(page - 1);
  const bool sealed = (uintptr_t)slot >= im->sealed && (uintptr_t)slot < im->sealed_end;
  if (sealed && mprotect((void *)at, page, PROT_READ | PROT_WRITE)) {
    return false;
  }
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  if (sealed && at + page <= im->sealed_end) {  // the loader seals whole pages
    mprotect((void *)at, page, PROT_READ);
  }
  return true;
}

// Leads every slot of `name` to `value`, or only counts them. -1: one can't be written.
static int lead(const image *im, const char *name, function value, bool only_count) {
  int count = 0;
  for (int t = 0; t < 2; t++) {
    for (size_t i = 0; i < im->counts[t]; i++) {
      const ElfW(Rela) *r = &im->tables[t][i];
      if (!IS_SLOT(ELF64_R_TYPE(r->r_info)) || r->r_addend ||
          strcmp(im->names + im->symbols[ELF64_R_SYM(r->r_info)].st_name, name)) {
        continue;
      }
      if (!only_count && !store(im, (function *)(im->base + r->r_offset), value)) {
        return -1;
      }
      count++;
    }
  }
  return count;
}

bool tt_host_pool_attach(void *library, int64_t memory) {
  const char *wish = getenv("TORCH_TPU_HOST_POOL");
  image im;
  if ((wish && !strcmp(wish, "0")) || !read_image(library, &im)) {
    return false;
  }
  const size_t count = sizeof references / sizeof *references;
  for (size_t i = 0; i < count; i++) {
    const int found = lead(&im, references[i].name, NULL, true);
    if ((references[i].needed && found < 1) || (!references[i].replacement && found)) {
      return false;
    }
  }
  if (!tt_host_pool_open(memory)) {
    TT_LOG(DEBUG, "host pool: no addresses for it: %s", strerror(errno));
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    if (references[i].replacement && lead(&im, references[i].name, references[i].replacement, false) < 0) {
      TT_LOG(DEBUG, "host pool: the plugin's reference to %s can't be changed: %s", references[i].name,
             strerror(errno));
      return false;  // those before it serve blocks of the C library as well
    }
  }
  return true;
}
