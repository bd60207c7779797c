// Clients and devices. fake.h says what this plugin is.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

void fake_sleep_us(int64_t us) {
  if (us > 0) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
  }
}

// ---- the worker: runs delayed work in order ----
static void *work(void *argument) {
  PJRT_Client *client = argument;
  pthread_mutex_lock(&client->lock);
  for (;;) {
    while (!client->first && !client->closing) {
      pthread_cond_wait(&client->wake, &client->lock);
    }
    fake_task *task = client->first;
    if (!task) {
      break;
    }
    client->first = task->next;
    client->last = client->first ? client->last : NULL;
    client->busy = true;
    pthread_mutex_unlock(&client->lock);
    fake_sleep_us(task->delay_us);
    task->run(task);
    pthread_mutex_lock(&client->lock);
    client->busy = false;
  }
  pthread_mutex_unlock(&client->lock);
  return NULL;
}

void fake_client_enqueue(PJRT_Client *client, fake_task *task) {
  pthread_mutex_lock(&client->lock);
  if (!client->worker_runs) {
    if (pthread_create(&client->worker, NULL, work, client)) {
      abort();
    }
    client->worker_runs = true;
  }
  task->next = NULL;
  if (client->last) {
    client->last->next = task;
  } else {
    client->first = task;
  }
  client->last = task;
  pthread_cond_signal(&client->wake);
  pthread_mutex_unlock(&client->lock);
}

bool fake_client_idle(PJRT_Client *client) {
  pthread_mutex_lock(&client->lock);
  bool idle = !client->first && !client->busy;
  pthread_mutex_unlock(&client->lock);
  return idle;
}

// ---- clients ----
static int64_t device_option(const PJRT_Client_Create_Args *args) {
  int64_t count = atomic_load(&fake_set.devices);
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *option = &args->create_options[i];
    if (option->name_size == 16 && !memcmp(option->name, "cpu_device_count", 16) &&
        option->type == PJRT_NamedValue_kInt64) {
      count = option->int64_value;
    }
  }
  return count;
}

PJRT_Error *fake_PJRT_Client_Create(PJRT_Client_Create_Args *args) {
  ENTER(PJRT_Client_Create);
  int64_t count = device_option(args);
  args->client = NULL;
  if (fake_lies(FAKE_PJRT_Client_Create)) {
    return NULL;
  }
  if (count < 1 || count > 1024) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "%lld devices", (long long)count);
  }
  PJRT_Client *client = calloc(1, sizeof *client);
  if (!client || !(client->devices = calloc((size_t)count, sizeof *client->devices)) ||
      !(client->device_list = calloc((size_t)count, sizeof *client->device_list))) {
    abort();
  }
  pthread_mutex_init(&client->lock, NULL);
  pthread_cond_init(&client->wake, NULL);
  client->device_count = (size_t)count;
  for (int i = 0; i < count; i++) {
    client->devices[i].client = client;
    // Ids differ from indices, as on a host that isn't the first.
    client->devices[i].description.id = i + 100;
    snprintf(client->devices[i].description.name, sizeof client->devices[i].description.name, "fake:%d", i);
    client->device_list[i] = &client->devices[i];
  }
  atomic_fetch_add(&fake_count.clients, 1);
  args->client = client;
  return NULL;
}

PJRT_Error *fake_PJRT_Client_Destroy(PJRT_Client_Destroy_Args *args) {
  PJRT_Client *client = args->client;
  if (client) {
    pthread_mutex_lock(&client->lock);
    client->closing = true;
    pthread_cond_signal(&client->wake);
    pthread_mutex_unlock(&client->lock);
    if (client->worker_runs) {
      pthread_join(client->worker, NULL);
    }
    pthread_mutex_destroy(&client->lock);
    pthread_cond_destroy(&client->wake);
    free(client->devices);
    free(client->device_list);
    free(client);
    atomic_fetch_sub(&fake_count.clients, 1);
  }
  return fake_enter(FAKE_PJRT_Client_Destroy);
}

PJRT_Device *fake_client_device(PJRT_Client *client, int id) {
  for (size_t i = 0; i < client->device_count; i++) {
    if (client->devices[i].description.id == id) {
      return &client->devices[i];
    }
  }
  return NULL;
}

PJRT_Error *fake_PJRT_Client_PlatformName(PJRT_Client_PlatformName_Args *args) {
  ENTER(PJRT_Client_PlatformName);
  bool lies = fake_lies(FAKE_PJRT_Client_PlatformName);
  args->platform_name = lies ? NULL : atomic_load(&fake_set.tpu) ? "tpu" : "cpu";
  args->platform_name_size = lies ? SIZE_MAX : 3;
  return NULL;
}

PJRT_Error *fake_PJRT_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args *args) {
  ENTER(PJRT_Client_ProcessIndex);
  args->process_index = 0;
  return NULL;
}

PJRT_Error *fake_PJRT_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args) {
  ENTER(PJRT_Client_PlatformVersion);
  args->platform_version = "fake 1";
  args->platform_version_size = 6;
  return NULL;
}

PJRT_Error *fake_PJRT_Client_Devices(PJRT_Client_Devices_Args *args) {
  ENTER(PJRT_Client_Devices);
  args->devices = args->client->device_list;
  args->num_devices = args->client->device_count;
  return NULL;
}

PJRT_Error *fake_PJRT_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args) {
  ENTER(PJRT_Client_AddressableDevices);
  args->addressable_devices = args->client->device_list;
  args->num_addressable_devices =
      fake_lies(FAKE_PJRT_Client_AddressableDevices) ? SIZE_MAX : args->client->device_count;
  return NULL;
}

// ---- devices ----
PJRT_Error *fake_PJRT_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args) {
  ENTER(PJRT_DeviceDescription_Id);
  args->id = args->device_description->id;
  return NULL;
}

PJRT_Error *fake_PJRT_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args) {
  ENTER(PJRT_DeviceDescription_ProcessIndex);
  args->process_index = 0;
  return NULL;
}

PJRT_Error *fake_PJRT_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args) {
  ENTER(PJRT_DeviceDescription_Attributes);
  args->attributes = NULL;
  args->num_attributes = 0;
  return NULL;
}

PJRT_Error *fake_PJRT_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args) {
  ENTER(PJRT_DeviceDescription_Kind);
  long long tpu = atomic_load(&fake_set.tpu);
  args->device_kind = tpu == 5 ? "TPU v5 lite" : tpu == 6 ? "TPU v6 lite" : tpu == 7 ? "TPU7x" : "fake";
  args->device_kind_size = strlen(args->device_kind);
  return NULL;
}

PJRT_Error *fake_PJRT_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args *args) {
  ENTER(PJRT_DeviceDescription_DebugString);
  args->debug_string = args->device_description->name;
  args->debug_string_size = strlen(args->device_description->name);
  return NULL;
}

PJRT_Error *fake_PJRT_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args *args) {
  ENTER(PJRT_DeviceDescription_ToString);
  args->to_string = args->device_description->name;
  args->to_string_size = strlen(args->device_description->name);
  return NULL;
}

PJRT_Error *fake_PJRT_Device_GetDescription(PJRT_Device_GetDescription_Args *args) {
  ENTER(PJRT_Device_GetDescription);
  args->device_description = fake_lies(FAKE_PJRT_Device_GetDescription) ? NULL : &args->device->description;
  return NULL;
}

PJRT_Error *fake_PJRT_Device_IsAddressable(PJRT_Device_IsAddressable_Args *args) {
  ENTER(PJRT_Device_IsAddressable);
  args->is_addressable = true;
  return NULL;
}

PJRT_Error *fake_PJRT_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args *args) {
  ENTER(PJRT_Device_LocalHardwareId);
  args->local_hardware_id = (int)(args->device - args->device->client->devices);
  return NULL;
}

PJRT_Error *fake_PJRT_Device_MemoryStats(PJRT_Device_MemoryStats_Args *args) {
  ENTER(PJRT_Device_MemoryStats);
  long long limit = atomic_load(&fake_set.memory_limit);
  if (!limit) {
    return fake_error(PJRT_Error_Code_UNIMPLEMENTED, "no memory_limit is set");
  }
  args->bytes_in_use = atomic_load(&args->device->client->bytes);
  args->bytes_limit = limit;
  args->bytes_limit_is_set = true;
  return NULL;
}
