// LD_PRELOAD library that widens a race in gRPC's TLS: when a connection ends and stops to watch
// the certificates (grpc_tls_certificate_distributor::CancelTlsCertificatesWatch), it waits for
// 20 ms after each lock that it releases.
//
// The library replaces absl::Mutex::Unlock, which the function calls, and waits only if the caller
// lies inside the function. SlowedUnwatches() says how often it has waited.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <string>

#include "absl/base/options.h"
#include "absl/synchronization/mutex.h"

namespace {

constexpr char kUnwatch[] =
    "_ZN32grpc_tls_certificate_distributor26CancelTlsCertificatesWatchEPNS_"
    "31TlsCertificatesWatcherInterfaceE";

std::atomic<int> slowed = 0;

void* Find(void* where, const std::string& name) {
  void* const found = dlsym(where, name.c_str());
  if (found == nullptr) {
    fprintf(stderr, "slow_unwatch: this version of gRPC or Abseil has no %s\n", name.c_str());
    abort();
  }
  return found;
}

struct Functions {
  void (*unlock)(absl::Mutex*);
  uintptr_t unwatch_begin;
  uintptr_t unwatch_end;

  Functions() {
#define PUSHPULL_TEXT(name) #name
#define PUSHPULL_EXPANDED(name) PUSHPULL_TEXT(name)
    const std::string inline_namespace = PUSHPULL_EXPANDED(ABSL_OPTION_INLINE_NAMESPACE_NAME);
    unlock = reinterpret_cast<void (*)(absl::Mutex*)>(
        Find(RTLD_NEXT, "_ZN4absl" + std::to_string(inline_namespace.size()) + inline_namespace +
                            "5Mutex6UnlockEv"));
    void* const unwatch = Find(RTLD_DEFAULT, kUnwatch);
    Dl_info library;
    const ElfW(Sym)* symbol = nullptr;
    if (dladdr1(unwatch, &library, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)),
                RTLD_DL_SYMENT) == 0 ||
        symbol == nullptr) {
      fprintf(stderr, "slow_unwatch: the size of %s is unknown\n", kUnwatch);
      abort();
    }
    unwatch_begin = reinterpret_cast<uintptr_t>(unwatch);
    unwatch_end = unwatch_begin + symbol->st_size;
  }
};

}  // namespace

extern "C" int SlowedUnwatches() { return slowed; }

void absl::Mutex::Unlock() {
  static const Functions functions;
  functions.unlock(this);
  const auto caller = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  if (caller < functions.unwatch_begin || caller >= functions.unwatch_end) return;
  ++slowed;
  const timespec delay = {0, 20'000'000};
  nanosleep(&delay, nullptr);
}
