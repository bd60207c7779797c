// What plugin and devices are: the part of an executable's conditions that PJRT knows.
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pjrt/internal.h"

// The linker's number of the build, from the notes of segment `segment`. False: there is none.
static bool put_note(tt_strbuf *out, int file, const Elf64_Phdr *segment) {
  enum { MOST = 4096 };
  unsigned char notes[MOST];
  size_t size = segment->p_filesz < MOST ? (size_t)segment->p_filesz : MOST;
  if (pread(file, notes, size, (off_t)segment->p_offset) != (ssize_t)size) {
    return false;
  }
  for (size_t at = 0; size - at >= sizeof(Elf64_Nhdr);) {
    Elf64_Nhdr note;
    memcpy(&note, notes + at, sizeof note);
    at += sizeof note;
    size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3, content = ((size_t)note.n_descsz + 3) & ~(size_t)3;
    if (name > size - at || content > size - at - name) {
      return false;
    }
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(notes + at, "GNU", 4) && note.n_descsz >= 8) {
      tt_strbuf_puts(out, "build ");
      tt_strbuf_append(out, (const char *)notes + at + name, note.n_descsz);
      tt_strbuf_puts(out, "\n");
      return true;
    }
    at += name + content;
  }
  return false;
}

static bool put_build_id(tt_strbuf *out, int file) {
  Elf64_Ehdr header;
  if (pread(file, &header, sizeof header, 0) != (ssize_t)sizeof header || memcmp(header.e_ident, ELFMAG, SELFMAG) ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return false;
  }
  for (int i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    ssize_t got = pread(file, &segment, sizeof segment, (off_t)(header.e_phoff + (Elf64_Off)i * sizeof segment));
    if (got == (ssize_t)sizeof segment && segment.p_type == PT_NOTE && put_note(out, file, &segment)) {
      return true;
    }
  }
  return false;
}

// Size and build id; where the linker made none, the time of the last change instead.
static void put_file(tt_strbuf *out, const char *path) {
  struct stat info;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &info)) {
    tt_strbuf_printf(out, "file %s\n", path);
  } else {
    tt_strbuf_printf(out, "size %lld\n", (long long)info.st_size);
    if (!put_build_id(out, file)) {
      tt_strbuf_printf(out, "changed %lld.%09ld\n", (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    }
  }
  if (file >= 0) {
    close(file);
  }
}

static void put_attribute(tt_strbuf *out, const PJRT_NamedValue *attribute) {
  size_t count = attribute->value_size < TT_PJRT_MAX_TEXT ? attribute->value_size : TT_PJRT_MAX_TEXT;
  tt_strbuf_append(out, attribute->name, attribute->name_size < TT_PJRT_MAX_TEXT ? attribute->name_size : 0);
  tt_strbuf_puts(out, "=");
  if (attribute->type == PJRT_NamedValue_kString) {
    tt_strbuf_append(out, attribute->string_value, count);
  } else if (attribute->type == PJRT_NamedValue_kInt64List) {
    for (size_t i = 0; i < count; i++) {
      tt_strbuf_printf(out, "%lld ", (long long)attribute->int64_array_value[i]);
    }
  } else if (attribute->type == PJRT_NamedValue_kInt64) {
    tt_strbuf_printf(out, "%lld", (long long)attribute->int64_value);
  }
  tt_strbuf_puts(out, "\n");
}

static tt_status *put_attributes(tt_strbuf *out, const PJRT_Api *api) {
  if (!api->PJRT_Plugin_Attributes) {
    return NULL;
  }
  PJRT_Plugin_Attributes_Args args = {.struct_size = PJRT_Plugin_Attributes_Args_STRUCT_SIZE};
  TT_PJRT_TRY(api, api->PJRT_Plugin_Attributes(&args), "attributes of the plugin");
  for (size_t i = 0; args.attributes && i < args.num_attributes && i < 64; i++) {
    put_attribute(out, &args.attributes[i]);
  }
  return NULL;
}

tt_status *tt_pjrt_describe(const tt_pjrt_plugin *plugin, const tt_pjrt_client *client, tt_strbuf *out) {
  const PJRT_Api *api = client->api;
  tt_strbuf_printf(out, "PJRT %d.%d\n", api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version);
  put_file(out, plugin->path);
  TT_TRY(put_attributes(out, api));
  tt_strbuf_printf(out, "%s %s\n", client->platform, client->platform_version);
  for (int32_t i = 0; i < client->device_count; i++) {
    // Without its number, which differs from host to host of one slice.
    tt_strbuf_printf(out, "device: %s\n", client->devices[i].kind);
  }
  return out->failed ? tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory") : NULL;
}

bool tt_pjrt_can_serialize(const tt_pjrt_client *client) {
  return client->api->PJRT_Executable_Serialize && client->api->PJRT_Executable_DeserializeAndLoad;
}

bool tt_pjrt_can_move(const tt_pjrt_client *client) {
  return client->table->deserialize_size >= PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE;
}

tt_status *tt_pjrt_options_bytes(const tt_pjrt_client *client, const tt_pjrt_compile_options *options, int32_t device,
                                 void **out_data, size_t *out_size) {
  *out_data = NULL;
  if (device >= 0) {
    TT_TRY(tt_pjrt_check_device(client, device));
  }
  char *data;
  TT_TRY(tt_pjrt_encode_options(options, device >= 0 ? client->devices[device].id : 0, &data, out_size));
  *out_data = data;
  return NULL;
}
