// What the fakes of NVIDIA's libraries share: numbers of both types, streams and switches.
#ifndef PUSHPULL_TESTS_TESTKIT_VENDOR_FAKE_NUMBERS_H_
#define PUSHPULL_TESTS_TESTKIT_VENDOR_FAKE_NUMBERS_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

// Defined by the emulation of CUDA in the program that has loaded the fake: runs the work on an
// emulated stream, in order with the kernels there, and then destroys the argument.
extern "C" void PushpullEmulatedEnqueue(void* stream, void (*work)(void*), void* argument,
                                        void (*destroy)(void*));

namespace pushpull::fakes {

inline void EnqueueOn(void* stream, std::function<void()> work) {
  using Work = std::function<void()>;
  PushpullEmulatedEnqueue(
      stream, [](void* argument) { (*static_cast<Work*>(argument))(); }, new Work(std::move(work)),
      [](void* argument) { delete static_cast<Work*>(argument); });
}

// Whether the environment variable, a list of words between commas, has the word. Tests set it to
// make calls fail.
inline bool IsSet(const char* variable, const char* word) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return false;
  return ("," + std::string(text) + ",").find("," + std::string(word) + ",") != std::string::npos;
}

inline float LoadNumber(const void* base, int64_t index, bool bfloat16) {
  float value = 0.0f;
  if (bfloat16) {
    const uint32_t bits = uint32_t{static_cast<const uint16_t*>(base)[index]} << 16;
    std::memcpy(&value, &bits, sizeof(value));
  } else {
    value = static_cast<const float*>(base)[index];
  }
  return value;
}

inline void StoreNumber(void* base, int64_t index, bool bfloat16, float value) {
  if (!bfloat16) {
    static_cast<float*>(base)[index] = value;
    return;
  }
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x7fff + (bits >> 16 & 1);  // to the nearest, ties to even
  static_cast<uint16_t*>(base)[index] = static_cast<uint16_t>(bits >> 16);
}

}  // namespace pushpull::fakes

#endif  // PUSHPULL_TESTS_TESTKIT_VENDOR_FAKE_NUMBERS_H_
