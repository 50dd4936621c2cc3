// Stands for libcublasLt.so.13 on a machine without a GPU: the part that the project calls, for
// programs with the emulated GPU. It multiplies matrices by the definition. It lists two
// algorithms, of which the second fills a workspace. FAKE_CUBLASLT in the environment makes it
// behave otherwise: no_create, no_algorithms, multiply_fails.
#include <algorithm>
#include <vector>

#include "kernels/cuda/vendor/cublaslt_api.h"
#include "tests/testkit/vendor/fake_numbers.h"

namespace {

using namespace pushpull::cublaslt;  // NOLINT(google-build-using-namespace)
using pushpull::fakes::IsSet;

constexpr int kInvalidValue = 7, kNotInitialized = 1, kExecutionFailed = 13;
constexpr size_t kWorkspaceOfSecond = 500;

struct FakeProduct {
  int32_t transpose[2] = {kNotTransposed, kNotTransposed};
};
struct FakeMatrix {
  int type = kFloat;
  int64_t rows = 0, columns = 0, leading = 0;
  int32_t order = 0;  // column by column
  // The place of an element of the matrix, or of its transpose.
  int64_t Index(int64_t row, int64_t column, bool transposed) const {
    if (transposed) std::swap(row, column);
    return order == kRowMajor ? row * leading + column : column * leading + row;
  }
};
struct FakePreference {
  uint64_t workspace = 0;
  uint32_t alignment = 256;  // the largest of the four
};

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 130401; }
const char* cublasLtGetStatusString(int) { return "FAKE_ERROR"; }

int cublasLtCreate(Handle* handle) {
  if (IsSet("FAKE_CUBLASLT", "no_create")) return kNotInitialized;
  *handle = new char;
  return kSuccess;
}
int cublasLtDestroy(Handle handle) {
  delete static_cast<char*>(handle);
  return kSuccess;
}

int cublasLtMatmulDescCreate(Description* product, int compute, int scale_type) {
  if (compute != kComputeFloat || scale_type != kFloat) return kInvalidValue;
  *product = new FakeProduct;
  return kSuccess;
}
int cublasLtMatmulDescDestroy(Description product) {
  delete static_cast<FakeProduct*>(product);
  return kSuccess;
}
int cublasLtMatmulDescSetAttribute(Description product, int name, const void* value, size_t size) {
  if ((name != kTransposeA && name != kTransposeB) || size != sizeof(int32_t)) return kInvalidValue;
  std::memcpy(&static_cast<FakeProduct*>(product)->transpose[name - kTransposeA], value, size);
  return kSuccess;
}

int cublasLtMatrixLayoutCreate(Description* matrix, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  *matrix =
      new FakeMatrix{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
  return kSuccess;
}
int cublasLtMatrixLayoutDestroy(Description matrix) {
  delete static_cast<FakeMatrix*>(matrix);
  return kSuccess;
}
int cublasLtMatrixLayoutSetAttribute(Description matrix, int name, const void* value, size_t size) {
  if (name != kOrder || size != sizeof(int32_t)) return kInvalidValue;
  std::memcpy(&static_cast<FakeMatrix*>(matrix)->order, value, size);
  return kSuccess;
}

int cublasLtMatmulPreferenceCreate(Description* preference) {
  *preference = new FakePreference;
  return kSuccess;
}
int cublasLtMatmulPreferenceDestroy(Description preference) {
  delete static_cast<FakePreference*>(preference);
  return kSuccess;
}
int cublasLtMatmulPreferenceSetAttribute(Description preference, int name, const void* value,
                                         size_t size) {
  auto* const fake = static_cast<FakePreference*>(preference);
  if (name == kMaxWorkspaceBytes && size == sizeof(uint64_t)) {
    std::memcpy(&fake->workspace, value, size);
    return kSuccess;
  }
  if (name < kMinAlignmentA || name > kMinAlignmentD || size != sizeof(uint32_t)) {
    return kInvalidValue;
  }
  std::memcpy(&fake->alignment, value, size);
  return kSuccess;
}

int cublasLtMatmulAlgoGetHeuristic(Handle, Description, Description, Description, Description,
                                   Description, Description preference, int wanted,
                                   HeuristicResult* results, int* found) {
  *found = 0;
  if (IsSet("FAKE_CUBLASLT", "no_algorithms")) return kNotSupported;
  const auto& fake = *static_cast<FakePreference*>(preference);
  for (int i = 0; i < std::min(wanted, 2); ++i) {
    const size_t bytes = i == 0 ? 0 : kWorkspaceOfSecond;
    if (bytes > fake.workspace) break;
    results[i] = {};
    results[i].algorithm.data[0] = i;
    results[i].algorithm.data[1] = fake.alignment;
    results[i].workspace_bytes = bytes;
    *found = i + 1;
  }
  return kSuccess;
}

int cublasLtMatmul(Handle, Description product, const void* alpha, const void* a,
                   Description a_layout, const void* b, Description b_layout, const void* beta,
                   const void*, Description, void* d, Description d_layout,
                   const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                   Stream stream) {
  if (IsSet("FAKE_CUBLASLT", "multiply_fails")) return kExecutionFailed;
  const FakeProduct of = *static_cast<FakeProduct*>(product);
  const FakeMatrix am = *static_cast<FakeMatrix*>(a_layout),
                   bm = *static_cast<FakeMatrix*>(b_layout),
                   dm = *static_cast<FakeMatrix*>(d_layout);
  const bool ta = of.transpose[0] == kTransposed, tb = of.transpose[1] == kTransposed;
  const int64_t rows = ta ? am.columns : am.rows, inner = ta ? am.rows : am.columns;
  const int64_t columns = tb ? bm.rows : bm.columns;
  const bool fits =
      (tb ? bm.columns : bm.rows) == inner && dm.rows == rows && dm.columns == columns;
  if (!fits || *static_cast<const float*>(alpha) != 1.0f ||
      *static_cast<const float*>(beta) != 0.0f) {
    return kInvalidValue;
  }
  for (const void* const address : {a, b, static_cast<const void*>(d)}) {
    if (reinterpret_cast<uintptr_t>(address) % algorithm->data[1] != 0) return kInvalidValue;
  }
  const size_t fills = algorithm->data[0] == 0 ? 0 : kWorkspaceOfSecond;
  if (fills > workspace_bytes) return kInvalidValue;
  pushpull::fakes::EnqueueOn(stream, [=] {
    if (fills > 0) std::memset(workspace, 0xa5, fills);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0.0;
        for (int64_t i = 0; i < inner; ++i) {
          sum += double{pushpull::fakes::LoadNumber(a, am.Index(r, i, ta), am.type == kBfloat16)} *
                 pushpull::fakes::LoadNumber(b, bm.Index(i, c, tb), bm.type == kBfloat16);
        }
        pushpull::fakes::StoreNumber(d, dm.Index(r, c, false), dm.type == kBfloat16,
                                     static_cast<float>(sum));
      }
    }
  });
  return kSuccess;
}

}  // extern "C"
