// Shared libraries that are loaded while the program runs, because most machines do not have them.
#ifndef PUSHPULL_COMMON_BASE_DYNAMIC_LIBRARY_H_
#define PUSHPULL_COMMON_BASE_DYNAMIC_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pushpull {

// A loaded library, which is unloaded with the object; its functions must not be called after that.
// Thread-compatible.
class DynamicLibrary {
 public:
  // `name` is a path, or the name of a file that the dynamic linker looks for ("libcudnn.so.9").
  // NOT_FOUND: there is none, or it cannot be loaded; the message has the linker's reason.
  static absl::StatusOr<std::unique_ptr<DynamicLibrary>> Open(const std::string& name);

  ~DynamicLibrary();
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;

  // Points *function to the symbol. FAILED_PRECONDITION: the library has no such symbol. The caller
  // states the type, which nothing checks.
  template <typename Function>
  absl::Status Find(const char* symbol, Function** function) const {
    void* address = nullptr;
    absl::Status status = FindAddress(symbol, &address);
    *function = reinterpret_cast<Function*>(address);
    return status;
  }

 private:
  DynamicLibrary(std::string name, void* handle);
  absl::Status FindAddress(const char* symbol, void** address) const;

  const std::string name_;
  void* const handle_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_DYNAMIC_LIBRARY_H_
