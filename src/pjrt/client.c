#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "pjrt/internal.h"

static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }

static tt_status *read_platform(tt_pjrt_client *client) {
  PJRT_Client_PlatformName_Args name = {.struct_size = PJRT_Client_PlatformName_Args_STRUCT_SIZE,
                                        .client = client->client};
  TT_PJRT_TRY(client->api, client->api->PJRT_Client_PlatformName(&name), "platform name");
  PJRT_Client_PlatformVersion_Args version = {.struct_size = PJRT_Client_PlatformVersion_Args_STRUCT_SIZE,
                                              .client = client->client};
  TT_PJRT_TRY(client->api, client->api->PJRT_Client_PlatformVersion(&version), "platform version");
  client->platform = tt_pjrt_copy_text(name.platform_name, name.platform_name_size);
  client->platform_version = tt_pjrt_copy_text(version.platform_version, version.platform_version_size);
  if (!client->platform || !client->platform_version) {
    return no_memory();
  }
  client->is_cpu = !strcasecmp(client->platform, "cpu");
  return NULL;
}

static tt_status *read_device(tt_pjrt_client *client, PJRT_Device *device, tt_pjrt_device *out_device) {
  const PJRT_Api *api = client->api;
  if (!device) {
    return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin gave a NULL device");
  }
  PJRT_Device_GetDescription_Args description = {.struct_size = PJRT_Device_GetDescription_Args_STRUCT_SIZE,
                                                 .device = device};
  TT_PJRT_TRY(api, api->PJRT_Device_GetDescription(&description), "device description");
  if (!description.device_description) {
    return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin gave a device without a description");
  }
  PJRT_DeviceDescription_Id_Args id = {.struct_size = PJRT_DeviceDescription_Id_Args_STRUCT_SIZE,
                                       .device_description = description.device_description};
  TT_PJRT_TRY(api, api->PJRT_DeviceDescription_Id(&id), "device id");
  PJRT_DeviceDescription_Kind_Args kind = {.struct_size = PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE,
                                           .device_description = description.device_description};
  TT_PJRT_TRY(api, api->PJRT_DeviceDescription_Kind(&kind), "device kind");
  *out_device = (tt_pjrt_device){
      .device = device, .id = id.id, .kind = tt_pjrt_copy_text(kind.device_kind, kind.device_kind_size)};
  return out_device->kind ? NULL : no_memory();
}

static tt_status *read_devices(tt_pjrt_client *client) {
  PJRT_Client_AddressableDevices_Args args = {.struct_size = PJRT_Client_AddressableDevices_Args_STRUCT_SIZE,
                                              .client = client->client};
  TT_PJRT_TRY(client->api, client->api->PJRT_Client_AddressableDevices(&args), "devices");
  size_t count = args.num_addressable_devices;
  if (!count || count > TT_PJRT_MAX_DEVICES || !args.addressable_devices) {
    return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin gave %zu devices", count);
  }
  client->devices = calloc(count, sizeof *client->devices);
  if (!client->devices) {
    return no_memory();
  }
  client->device_count = (int32_t)count;
  for (size_t i = 0; i < count; i++) {
    TT_TRY(read_device(client, args.addressable_devices[i], &client->devices[i]));
  }
  return NULL;
}

static tt_status *create(tt_pjrt_client *client, const tt_pjrt_client_options *options) {
  PJRT_NamedValue cpu_devices = {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                                 .name = "cpu_device_count",
                                 .name_size = strlen("cpu_device_count"),
                                 .type = PJRT_NamedValue_kInt64,
                                 .value_size = 1};
  PJRT_Client_Create_Args args = {.struct_size = client->table->client_create_size};
  if (options && options->cpu_device_count) {
    if (options->cpu_device_count < 0 || options->cpu_device_count > TT_PJRT_MAX_DEVICES) {
      return tt_error(TT_ERR_VALUE, "%d devices were asked for; 1 to %d are possible", options->cpu_device_count,
                      TT_PJRT_MAX_DEVICES);
    }
    cpu_devices.int64_value = options->cpu_device_count;
    args.create_options = &cpu_devices;
    args.num_options = 1;
  }
  TT_PJRT_TRY(client->api, client->api->PJRT_Client_Create(&args), "creating the client");
  if (!args.client) {
    return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin gave no client");
  }
  client->client = args.client;
  TT_TRY(read_platform(client));
  return read_devices(client);
}

tt_status *tt_pjrt_client_create(tt_pjrt_plugin *plugin, const tt_pjrt_client_options *options,
                                 tt_pjrt_client **out_client) {
  *out_client = NULL;
  tt_pjrt_client *client = calloc(1, sizeof *client);
  if (!client) {
    return no_memory();
  }
  client->table = plugin->table;
  client->api = &plugin->table->api;
  tt_status *status = create(client, options);
  if (status) {
    tt_pjrt_client_free(client);
    return tt_status_prefix(status, "the PJRT plugin %s", plugin->path);
  }
  *out_client = client;
  return NULL;
}

void tt_pjrt_client_free(tt_pjrt_client *client) {
  if (!client) {
    return;
  }
  if (client->client) {
    PJRT_Client_Destroy_Args args = {.struct_size = PJRT_Client_Destroy_Args_STRUCT_SIZE, .client = client->client};
    tt_pjrt_drop_error(client->api, client->api->PJRT_Client_Destroy(&args));
  }
  for (int32_t i = 0; i < client->device_count; i++) {
    free(client->devices[i].kind);
  }
  free(client->devices);
  free(client->platform);
  free(client->platform_version);
  free(client);
}

const char *tt_pjrt_client_platform(const tt_pjrt_client *client) { return client->platform; }
const char *tt_pjrt_client_platform_version(const tt_pjrt_client *client) { return client->platform_version; }
bool tt_pjrt_client_is_cpu(const tt_pjrt_client *client) { return client->is_cpu; }
int32_t tt_pjrt_client_device_count(const tt_pjrt_client *client) { return client->device_count; }

const char *tt_pjrt_device_kind(const tt_pjrt_client *client, int32_t device) {
  return device >= 0 && device < client->device_count ? client->devices[device].kind : "";
}

tt_status *tt_pjrt_check_device(const tt_pjrt_client *client, int32_t device) {
  if (device < 0 || device >= client->device_count) {
    return tt_error(TT_ERR_RUNTIME, "there is no device %d: %d device%s are present", device, client->device_count,
                    client->device_count == 1 ? "" : "s");
  }
  return NULL;
}

bool tt_pjrt_device_memory(tt_pjrt_client *client, int32_t device, int64_t *out_in_use, int64_t *out_limit) {
  *out_in_use = *out_limit = 0;
  if (device < 0 || device >= client->device_count || !client->api->PJRT_Device_MemoryStats) {
    return false;
  }
  PJRT_Device_MemoryStats_Args args = {.struct_size = PJRT_Device_MemoryStats_Args_STRUCT_SIZE,
                                       .device = client->devices[device].device};
  PJRT_Error *error = client->api->PJRT_Device_MemoryStats(&args);
  if (error) {
    tt_pjrt_drop_error(client->api, error);
    return false;
  }
  if (!args.bytes_limit_is_set || args.bytes_limit <= 0 || args.bytes_in_use < 0) {
    return false;
  }
  *out_in_use = args.bytes_in_use;
  *out_limit = args.bytes_limit;
  return true;
}
