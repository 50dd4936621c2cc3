// A fake of NVIDIA's management library: the functions that GpuMonitor calls, with five GPUs. GPU 0
// reports everything, GPU 1 only its memory, GPU 2 is lost, GPU 3 is like GPU 0 with a UUID that
// begins in the same way, and GPU 4 is lost but still tells its UUID. With FAKE_NVML_INIT=N,
// nvmlInit_v2 returns N. FAKE_NVML_UUIDS=A,B replaces the UUIDs of GPUs 0 and 3.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kInsufficientSize = 7;
constexpr int kGpuIsLost = 15;
constexpr unsigned kNumGpus = 5;
constexpr const char* kUuids[kNumGpus] = {"GPU-aa01", "GPU-bb02", "GPU-cc03", "GPU-aa04",
                                          "GPU-ee05"};

int users = 0;

struct Utilization {
  unsigned gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};

unsigned IndexOf(void* device) {
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device)) - 1;
}

// Also fails if the caller did not call nvmlInit_v2.
int StateOf(void* device) {
  if (users == 0 || IndexOf(device) >= kNumGpus) return kInvalidArgument;
  return IndexOf(device) == 2 || IndexOf(device) == 4 ? kGpuIsLost : kSuccess;
}

std::string UuidOf(unsigned index) {
  const char* const replaced = std::getenv("FAKE_NVML_UUIDS");
  if (replaced == nullptr || index % 3 != 0) return kUuids[index];
  const std::string both = replaced;
  const size_t comma = both.find(',');
  return index == 0 ? both.substr(0, comma) : both.substr(comma + 1);
}

}  // namespace

extern "C" {

int FakeNvmlUsers() { return users; }

int nvmlInit_v2() {
  const char* const result = std::getenv("FAKE_NVML_INIT");
  if (result != nullptr) return std::atoi(result);
  ++users;
  return kSuccess;
}

int nvmlShutdown() {
  --users;
  return kSuccess;
}

const char* nvmlErrorString(int result) {
  if (result == 9) return "Driver Not Loaded";
  return result == kGpuIsLost ? "GPU is lost" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kNumGpus;
  return users > 0 ? kSuccess : kInvalidArgument;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= kNumGpus) return kInvalidArgument;
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index) + 1);
  return kSuccess;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  const int state = StateOf(device);
  if (state != kSuccess && IndexOf(device) != 4) return state;
  const std::string name = UuidOf(IndexOf(device));
  if (name.size() >= length) return kInsufficientSize;
  std::strcpy(uuid, name.c_str());
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
  const int state = StateOf(device);
  if (state != kSuccess) return state;
  if (IndexOf(device) == 1) return kNotSupported;
  *utilization = {90 + IndexOf(device), 40};
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(void* device, MemoryInfo* memory) {
  const int state = StateOf(device);
  if (state != kSuccess) return state;
  *memory = {8ull << 30, 5ull << 30, 3ull << 30};
  return kSuccess;
}

int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* temperature) {
  const int state = StateOf(device);
  if (state != kSuccess) return state;
  if (IndexOf(device) == 1) return kNotSupported;
  if (sensor != 0) return kInvalidArgument;
  *temperature = 54;
  return kSuccess;
}

}  // extern "C"
