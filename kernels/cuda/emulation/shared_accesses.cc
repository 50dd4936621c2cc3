#include "kernels/cuda/emulation/shared_accesses.h"

#include <cstdint>
#include <cstring>

namespace pushpull::emulation {
namespace {

// One subtraction and one comparison tell whether an address is in the window.
struct Window {
  uintptr_t begin = 0;
  uintptr_t bytes = 0;
};
constinit thread_local Window window;

inline void Note(AccessKind kind, const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) - window.begin >= window.bytes) return;
  CheckSharedAccess(kind, address, bytes);
}

}  // namespace

void SetAccessWindow(const void* begin, size_t bytes) {
  window = {reinterpret_cast<uintptr_t>(begin), bytes};
}

void NoteAccess(AccessKind kind, const void* address, size_t bytes) { Note(kind, address, bytes); }

}  // namespace pushpull::emulation

#ifdef PUSHPULL_EMULATION_OBSERVES

using pushpull::emulation::AccessKind;
using pushpull::emulation::Note;

// What -fsanitize=thread calls; the compilers define the names.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define PUSHPULL_ACCESSES(size)                                                            \
  void __tsan_read##size(void* p) { Note(AccessKind::kRead, p, size); }                    \
  void __tsan_write##size(void* p) { Note(AccessKind::kWrite, p, size); }                  \
  void __tsan_unaligned_read##size(void* p) { Note(AccessKind::kRead, p, size); }          \
  void __tsan_unaligned_write##size(void* p) { Note(AccessKind::kWrite, p, size); }        \
  void __tsan_volatile_read##size(void* p) { Note(AccessKind::kRead, p, size); }           \
  void __tsan_volatile_write##size(void* p) { Note(AccessKind::kWrite, p, size); }         \
  void __tsan_unaligned_volatile_read##size(void* p) { Note(AccessKind::kRead, p, size); } \
  void __tsan_unaligned_volatile_write##size(void* p) { Note(AccessKind::kWrite, p, size); }
PUSHPULL_ACCESSES(1)
PUSHPULL_ACCESSES(2)
PUSHPULL_ACCESSES(4)
PUSHPULL_ACCESSES(8)
PUSHPULL_ACCESSES(16)
#undef PUSHPULL_ACCESSES

void __tsan_read_range(void* p, size_t bytes) { Note(AccessKind::kRead, p, bytes); }
void __tsan_write_range(void* p, size_t bytes) { Note(AccessKind::kWrite, p, bytes); }

void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  Note(AccessKind::kRead, from, bytes);
  Note(AccessKind::kWrite, to, bytes);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  Note(AccessKind::kRead, from, bytes);
  Note(AccessKind::kWrite, to, bytes);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  Note(AccessKind::kWrite, to, bytes);
  return std::memset(to, value, bytes);
}

// Atomic operations of host code in the same files: kernels use atomicMin instead.
#define PUSHPULL_ATOMICS(bits)                                                                     \
  using Number##bits = uint##bits##_t;                                                             \
  Number##bits __tsan_atomic##bits##_load(const volatile Number##bits* p, int) {                   \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile Number##bits* p, Number##bits value, int) {            \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  Number##bits __tsan_atomic##bits##_exchange(volatile Number##bits* p, Number##bits value, int) { \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  Number##bits __tsan_atomic##bits##_fetch_add(volatile Number##bits* p, Number##bits value,       \
                                               int) {                                              \
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);                                         \
  }                                                                                                \
  Number##bits __tsan_atomic##bits##_fetch_sub(volatile Number##bits* p, Number##bits value,       \
                                               int) {                                              \
    return __atomic_fetch_sub(p, value, __ATOMIC_SEQ_CST);                                         \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(                                               \
      volatile Number##bits* p, Number##bits* expected, Number##bits value, int, int) {            \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(                                                 \
      volatile Number##bits* p, Number##bits* expected, Number##bits value, int, int) {            \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                          \
  }
PUSHPULL_ATOMICS(8)
PUSHPULL_ATOMICS(16)
PUSHPULL_ATOMICS(32)
PUSHPULL_ATOMICS(64)
#undef PUSHPULL_ATOMICS
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

#endif  // PUSHPULL_EMULATION_OBSERVES
