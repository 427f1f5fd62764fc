/* A stand-in for NVIDIA's driver: as many imaginary GPUs as EMULATED_CUDA_DEVICES says, or one.

   EMULATED_CUDA_MODE is their compute mode. The last byte of a UUID is the number of the GPU; with "mig" in EMULATED_NVML, 128 more. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count(void)
{
    const char *said = getenv("EMULATED_CUDA_DEVICES");
    return said ? atoi(said) : 1;
}

static int initialised;

int cuInit(unsigned flags)
{
    initialised = 1;
    return flags != 0;
}

int cuDeviceGetCount(int *answer)
{
    *answer = count();
    return initialised ? 0 : 3;
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, size, "Emulated GPU");
    return device >= count();
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    const char *nvml = getenv("EMULATED_NVML");
    memset(uuid, 0, 16);
    uuid[15] = device + (nvml && strstr(nvml, "mig") ? 128 : 0);
    return device >= count();
}

int cuDeviceGetAttribute(int *answer, int attribute, int device)
{
    const char *mode = getenv("EMULATED_CUDA_MODE");
    *answer = mode ? atoi(mode) : 0;
    return attribute != 20 || device >= count();
}
