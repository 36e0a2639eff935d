/* A management library without a driver, for tests: three GPUs with the functions and structures of NVIDIA's NVML.
 *
 *   GPU-whole    cannot be split; 3 of 8 GiB in use, busy 40 % of the time
 *   GPU-one      split, with one MIG instance, which tells its memory and no utilisation, as MIG instances do
 *   GPU-two      split into two MIG instances
 *
 * NVML_DOUBLE_BROKEN in the environment makes nvmlInit fail as it does without a driver.
 */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };

typedef struct Device {
    const char *uuid;
    struct Device *instances[2];
    int is_instance, is_lost;
    unsigned long long used;
    unsigned int busy;
} Device;

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Utilization;

#define GIB (1ull << 30)
static Device one_a = {"MIG-one-a", {0}, 1, 0, 1 * GIB, 0};
static Device two_a = {"MIG-two-a", {0}, 1, 0, 2 * GIB, 0}, two_b = {"MIG-two-b", {0}, 1, 0, 5 * GIB, 0};
static Device whole = {"GPU-whole", {0}, 0, 0, 3 * GIB, 40};
static Device one = {"GPU-one", {0, &one_a}, 0, 0, 6 * GIB, 90}, two = {"GPU-two", {&two_a, &two_b}, 0, 0, 7 * GIB, 90};
static Device *all[] = {&one_a, &two_a, &two_b, &whole, &one, &two};

void lose_all(int is_lost) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]->is_lost = is_lost;
}

int nvmlInitWithFlags(unsigned int flags) { return getenv("NVML_DOUBLE_BROKEN") ? DRIVER_NOT_LOADED : SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
        case NOT_SUPPORTED: return "Not Supported";
        case NOT_FOUND: return "Not Found";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case GPU_IS_LOST: return "GPU is lost";
    }
    return "Invalid Argument";
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->uuid, uuid)) { *device = all[i]; return SUCCESS; }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned int length) {
    strncpy(uuid, device->uuid, length);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Device *device, unsigned int *current, unsigned int *pending) {
    if (device == &whole) return NOT_SUPPORTED;
    *current = *pending = 1;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned int *count) { *count = 2; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned int index, Device **instance) {
    *instance = device->instances[index];
    return *instance ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    if (device->is_lost) return GPU_IS_LOST;
    memory->total = 8 * GIB;
    memory->used = device->used;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    if (device->is_lost) return GPU_IS_LOST;
    if (device->is_instance) return NOT_SUPPORTED;
    rates->gpu = device->busy;
    rates->memory = 11;
    return SUCCESS;
}
