// Whole files, for programs of tests and benchmarks, and the inputs that fuzzers are given by name.
#ifndef TORCHTPU_TESTS_SUPPORT_FILES_H
#define TORCHTPU_TESTS_SUPPORT_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// The caller's, with a zero behind it; NULL if it can't be read.
static inline char *read_file(const char *path, size_t *out_size) {
  FILE *file = fopen(path, "rbe");
  char *data = NULL;
  if (file && !fseek(file, 0, SEEK_END)) {
    long size = ftell(file);
    rewind(file);
    data = size >= 0 ? malloc((size_t)size + 1) : NULL;
    *out_size = data ? fread(data, 1, (size_t)size, file) : 0;
    if (data) {
      data[*out_size] = 0;
    }
  }
  if (file) {
    fclose(file);
  }
  return data;
}

// Gives each file to a fuzzer; not 0 if one can't be read.
static inline int fuzz_files(char **paths, int count, int (*fuzz)(const uint8_t *data, size_t size)) {
  int failed = 0;
  for (int i = 0; i < count; i++) {
    size_t size = 0;
    char *data = read_file(paths[i], &size);
    if (!data) {
      perror(paths[i]);
    }
    failed |= data ? fuzz((const uint8_t *)data, size) : 1;
    free(data);
  }
  return failed;
}

#endif  // TORCHTPU_TESTS_SUPPORT_FILES_H
