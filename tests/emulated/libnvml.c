/* A stand-in for NVIDIA's management library (NVML), for the GPUs of libcuda.c.

   Words in EMULATED_NVML: "hidden" lists no process, "mig" splits the GPUs, "capped" limits the
   power all the time, "shared" lists another process too. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { CARDS = 8, MHZ = 1980, WATTS = 300 };

static const unsigned long long CONTEXT = 500ULL << 20;

typedef struct { int number, is_part; } gpu;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    int type, outcome;
    union { double real; unsigned long long whole; } value;
} field_value;

static gpu cards[CARDS], parts[CARDS];
static volatile unsigned long long reserved[CARDS];

static int said(const char *word)
{
    const char *words = getenv("EMULATED_NVML");
    return words && strstr(words, word);
}

static unsigned number(const char *name, unsigned usual)
{
    const char *text = getenv(name);
    return text ? atoi(text) : usual;
}

static unsigned long long nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

/* Not of NVML: the emulated torch tells how much it has reserved. */
void emulated_reserve(int card, unsigned long long bytes)
{
    reserved[card] = bytes;
}

int nvmlInitWithFlags(unsigned flags)
{
    return flags ? NOT_SUPPORTED : OK;
}

int nvmlShutdown(void)
{
    return OK;
}

const char *nvmlErrorString(int code)
{
    return code == NOT_SUPPORTED ? "Not Supported" : code == NOT_FOUND ? "Not Found" : "Emulated";
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    snprintf(version, size, "999.0");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *answer)
{
    *answer = number("EMULATED_CUDA_DEVICES", 1);
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **handle)
{
    unsigned last = strtoul(uuid + strlen(uuid) - 2, NULL, 16);
    int is_part = last >= 128;
    if (strncmp(uuid, is_part ? "MIG-" : "GPU-", 4) || last % 128 >= CARDS)
        return NOT_FOUND;
    *handle = (is_part ? parts : cards) + last % 128;
    (*handle)->number = last % 128;
    (*handle)->is_part = is_part;
    return OK;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu *part, gpu **handle)
{
    if (!part->is_part)
        return NOT_FOUND;
    *handle = cards + part->number;
    return OK;
}

int nvmlDeviceGetMemoryInfo(gpu *handle, memory *answer)
{
    unsigned long long total = (unsigned long long)number("EMULATED_CUDA_MEMORY", 8) << 30;
    unsigned long long used = CONTEXT + reserved[handle->number];
    *answer = (memory){total, total - used, used};
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(gpu *handle, unsigned *count, process *list)
{
    unsigned room = *count, of_others = said("shared") ? 1 : 0;
    *count = of_others + (said("hidden") ? 0 : 1);
    if (room < *count)
        return INSUFFICIENT_SIZE;
    if (of_others)
        list[0] = (process){1, 1ULL << 30, 0, 0};
    if (*count > of_others)
        list[of_others] = (process){getpid(), CONTEXT + reserved[handle->number], 0, 0};
    return OK;
}

int nvmlDeviceGetPowerUsage(gpu *handle, unsigned *milliwatts)
{
    *milliwatts = 1000 * WATTS;
    return handle->is_part ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetUtilizationRates(gpu *handle, unsigned rates[2])
{
    rates[0] = said("shared") ? 31 : 0; /* of time, in percent */
    rates[1] = 0;
    return handle->is_part ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetEnforcedPowerLimit(gpu *handle, unsigned *milliwatts)
{
    *milliwatts = 700000;
    return handle->is_part ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetEccMode(gpu *handle, unsigned *now, unsigned *later)
{
    *now = *later = 1;
    return handle->is_part ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetTotalEnergyConsumption(gpu *handle, unsigned long long *millijoules)
{
    *millijoules = nanoseconds() / 1000000 * WATTS;
    return handle->is_part ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetClockInfo(gpu *handle, int kind, unsigned *mhz)
{
    *mhz = number("EMULATED_CUDA_MHZ", MHZ);
    return handle->is_part || kind != 1 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMaxClockInfo(gpu *handle, int kind, unsigned *mhz)
{
    *mhz = MHZ;
    return handle->is_part || kind != 1 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetFieldValues(gpu *handle, int count, field_value *values)
{
    if (handle->is_part)
        return NOT_SUPPORTED;
    for (int i = 0; i < count; i++) {
        int known = values[i].field >= 74 && values[i].field <= 79;
        values[i].outcome = known ? OK : NOT_SUPPORTED;
        values[i].type = 3; /* unsigned long long */
        values[i].value.whole = values[i].field == 74 && said("capped") ? nanoseconds() : 0;
    }
    return OK;
}
