// Tested by tests/worker/model/gpu_monitor_test.cc.
#include "common/base/dynamic_library.h"

#include <dlfcn.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<DynamicLibrary>> DynamicLibrary::Open(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load ", name, ": ", dlerror()));
  }
  return absl::WrapUnique(new DynamicLibrary(name, handle));
}

DynamicLibrary::DynamicLibrary(std::string name, void* handle)
    : name_(std::move(name)), handle_(handle) {}

DynamicLibrary::~DynamicLibrary() {
#ifndef __SANITIZE_ADDRESS__
  // AddressSanitizer would take all that NVIDIA's libraries keep until the end for leaks.
  dlclose(handle_);
#endif
}

absl::Status DynamicLibrary::FindAddress(const char* symbol, void** address) const {
  *address = dlsym(handle_, symbol);
  if (*address != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(name_, " has no ", symbol));
}

}  // namespace pushpull
