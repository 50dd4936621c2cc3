// The products of Bfloat16, in pairs and as floats: their definition, with each instruction set,
// also for numbers that training avoids. fast_convolution_test.cc tests the products as parts of
// convolutions.
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/base/random.h"
#include "kernels/cpu/flush_denormals.h"
#include "tests/testkit/kernels/before_a_page.h"

namespace pushpull {
namespace {

// The exponents of random operands: those of a and b are about `a` and `b`, at most `spread` away.
struct Exponents {
  int a, b, spread;
};

// Numbers with random signs, mantissas and exponents, the latter at most `spread` from `middle`.
// The exponent -127 makes denormal numbers.
std::vector<Bfloat16> RandomNumbers(int64_t count, uint64_t stream, int middle, int spread) {
  CounterRandom random(7, stream);
  std::vector<Bfloat16> numbers(count);
  for (Bfloat16& number : numbers) {
    const int exponent = middle - spread + static_cast<int>(random.NextBelow(2 * spread + 1));
    number.bits = static_cast<uint16_t>((random.NextUint32() & 0x807f) | (exponent + 127) << 7);
  }
  return numbers;
}

// A denormal number counts as zero.
float Flushed(float value) {
  return std::abs(value) < 1.17549435e-38f ? std::copysign(0.0f, value) : value;
}

// One addition of a product, as the header defines it.
float Add(float sum, Bfloat16 a, Bfloat16 b) {
  return Flushed(std::fma(Flushed(ToFloat(a)), Flushed(ToFloat(b)), sum));
}

// How the numbers of a sum are added up: in pairs, or in the steps of tiles.
enum class Order { kPairs, kTiles };

// Returns sum + a(begin) * b(begin) + ... + a(end - 1) * b(end - 1) as the header defines it, where
// the numbers are one step of tiles.
template <typename A, typename B>
float AddStep(Order order, float sum, int64_t begin, int64_t end, A a, B b) {
  float even = 0, odd = 0;
  for (int64_t k = begin; k < end; k += 2) {
    if (order == Order::kPairs) {
      sum = Add(Add(sum, a(k + 1), b(k + 1)), a(k), b(k));
    } else {
      even = Add(even, a(k), b(k));
      odd = Add(odd, a(k + 1), b(k + 1));
    }
  }
  return order == Order::kPairs ? sum : Flushed(sum + Flushed(even + odd));
}

Order OrderOfPairs(CpuIsa isa) { return MultipliesInTiles(isa) ? Order::kTiles : Order::kPairs; }

// Returns the bits of the numbers, with one pattern for all that are not a number: which one of two
// a sum keeps is not defined.
std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&bits[i], &values[i], sizeof(float));
    if (std::isnan(values[i])) bits[i] = 0x7fc00000;
  }
  return bits;
}

class PairProduct : public testing::TestWithParam<Exponents> {
 protected:
  void TearDown() override { UseCpuIsa(AvailableCpuIsas().back()); }
  struct Size {
    int64_t inner;
    int width;
  };
  static std::vector<Size> Cases() {
    std::vector<Size> cases;
    for (const int width : {8, 16, 24, 32}) {
      for (const int64_t inner : {37, 1603}) cases.push_back({inner, width});
    }
    return cases;
  }
  // A CPU without fused multiply-adds rounds each product, so it is left out where a product would
  // overflow or become denormal.
  static std::vector<CpuIsa> Isas() {
    std::vector<CpuIsa> isas = AvailableCpuIsas();
    const Exponents& of = GetParam();
    const bool fits = std::abs(of.a + of.b) + 2 * of.spread + 2 < 126;
    if (!fits) std::erase_if(isas, [](CpuIsa isa) { return !HasFusedMultiplyAdd(isa); });
    return isas;
  }

 private:
  const FlushDenormals flush_;
};

// The panel with this channel, which may be one of the padding.
Panel PanelOf(const Panels& panels, int64_t channel) {
  for (int64_t p = 0;; ++p) {
    if (channel < panels[p].start + panels[p].width) return panels[p];
  }
}

// Panels lie next to each other, have one of the widths that products know, and leave less than a
// vector unused.
TEST(Panels, CoverTheChannels) {
  for (const bool merge_pairs : {false, true}) {
    for (int64_t channels = 1; channels <= 200; ++channels) {
      const Panels panels(channels, merge_pairs);
      int64_t end = 0;
      for (int64_t p = 0; p < panels.count(); ++p) {
        const Panel panel = panels[p];
        EXPECT_EQ(panel.start, end) << channels;
        end += panel.width;
        EXPECT_EQ(panel.valid, std::min(channels, end) - panel.start) << channels;
        EXPECT_EQ(panels.IndexOf(panel.start), p) << channels;
        EXPECT_EQ(panels.IndexOf(end - 1), p) << channels;
        EXPECT_GT(panel.valid, panel.width - kPanelAlignment) << channels;
        const bool only_one = panels.count() == 1;
        EXPECT_TRUE(panel.width == 16 || panel.width == 24 || (panel.width == 32 && merge_pairs) ||
                    (panel.width == 8 && only_one))
            << channels << ": " << panel.width;
      }
      EXPECT_EQ(panels.padded(), end);
      // A slice of panels has no more than 8 channels more than it should have.
      const int64_t slice = panels.PanelsOf(64);
      for (int64_t p = 0; p < panels.count(); p += slice) {
        const Panel last = panels[std::min(p + slice, panels.count()) - 1];
        EXPECT_LE(last.start + last.width - panels[p].start, 64 + 8) << channels;
      }
      EXPECT_EQ(panels.all().end, panels.count());
    }
  }
}

std::vector<BfloatAsFloat> Widened(const std::vector<Bfloat16>& numbers) {
  std::vector<BfloatAsFloat> widened;
  for (const Bfloat16 number : numbers) widened.push_back({ToFloat(number)});
  return widened;
}

// Returns the rows [rows, width] of a panel that has them in pairs, as floats one after the other.
std::vector<BfloatAsFloat> WidenedRows(const std::vector<Bfloat16>& pairs, int64_t width) {
  std::vector<BfloatAsFloat> rows(pairs.size());
  for (int64_t i = 0; i < static_cast<int64_t>(pairs.size()); ++i) {
    const int64_t pair = i / 2 / width, column = i / 2 % width;
    rows[(2 * pair + i % 2) * width + column] = {ToFloat(pairs[i])};
  }
  return rows;
}

// c = a * b with a[rows, inner] in panels and b[inner, width] in pairs of rows, or as floats.
// The second length is more than what passes through the cache at once, and is also multiplied in
// two calls.
TEST_P(PairProduct, MultiplyPanelFollowsItsDefinition) {
  constexpr int64_t kRows = 21;
  for (const auto& [inner, width] : Cases()) {
    const Panels panels(inner, /*merge_pairs=*/width == 32);
    std::vector<Bfloat16> a =
        RandomNumbers(kRows * panels.padded(), 1, GetParam().a, GetParam().spread);
    std::vector<Bfloat16> b =
        RandomNumbers(EvenRows<Bfloat16>(inner) * width, 2, GetParam().b, GetParam().spread);
    const auto place_of_a = [&](int64_t r, int64_t k) {
      const Panel panel = PanelOf(panels, k);
      return kRows * panel.start + r * panel.width + k - panel.start;
    };
    const auto place_of_b = [width = width](int64_t k, int64_t j) {
      return (k / 2 * width + j) * 2 + k % 2;
    };
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t k = inner; k < panels.padded(); ++k) a[place_of_a(r, k)].bits = 0;
    }
    for (int64_t j = 0; j < width; ++j) b[place_of_b(inner, j)].bits = 0;
    const auto expected_product = [&, width = width](Order order) {
      std::vector<float> expected(kRows * width);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t j = 0; j < width; ++j) {
          float sum = 0;
          for (int64_t p = 0; p < panels.count(); ++p) {
            const Panel panel = panels[p];
            sum = AddStep(
                order, sum, panel.start, panel.start + panel.valid,
                [&](int64_t k) { return a[place_of_a(r, k)]; },
                [&](int64_t k) { return b[place_of_b(k, j)]; });
          }
          expected[r * width + j] = sum;
        }
      }
      return Bits(expected);
    };
    const std::vector<uint32_t> in_pairs = expected_product(Order::kPairs);
    const std::vector<uint32_t> in_tiles = expected_product(Order::kTiles);
    const auto expect_product = [&](const auto& left, const auto& right,
                                    const std::vector<uint32_t>& expected, const char* name) {
      std::vector<float> actual(kRows * width);
      for (const int64_t cut : {int64_t{0}, panels.count() / 3}) {
        if (cut > 0) {
          MultiplyPanel(panels, {0, cut}, left.data(), kRows, 0, kRows, right.data(), width,
                        actual.data());
        }
        MultiplyPanel(panels, {cut, panels.count()}, &left[kRows * panels[cut].start], kRows, 0,
                      kRows, &right[panels[cut].start * width], width, actual.data());
        EXPECT_EQ(Bits(actual), expected) << name << " with " << CpuIsaName(ChosenCpuIsa()) << ", "
                                          << inner << " x " << width << ", cut at " << cut;
      }
    };
    for (const CpuIsa isa : Isas()) {
      UseCpuIsa(isa);
      if (width == 32 && ResultPanels(32).count() != 1) continue;
      expect_product(a, b, OrderOfPairs(isa) == Order::kTiles ? in_tiles : in_pairs, "pairs");
      expect_product(Widened(a), WidenedRows(b, width), in_pairs, "floats");
    }
  }
}

// Returns transpose(a) * b. The steps of tiles have up to 32 rows, in each 384 rows as equally many
// as possible.
std::vector<float> TransposedProduct(Order order, const std::vector<Bfloat16>& a, int64_t a_width,
                                     const std::vector<Bfloat16>& b, int64_t width, int64_t rows) {
  const auto number = [rows](const std::vector<Bfloat16>& of, int64_t row, int64_t columns,
                             int64_t column) {
    return row < rows ? of[row * columns + column] : Bfloat16{0};
  };
  std::vector<float> product(a_width * width);
  for (int64_t i = 0; i < a_width; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      float sum = 0;
      for (int64_t begin = 0; begin < rows;) {
        const int64_t part = std::min<int64_t>(384, rows - begin / 384 * 384);
        const int64_t steps = (part + 31) / 32, pairs = (part + 1) / 2;
        const int64_t depth = 2 * ((pairs + steps - 1) / steps);
        const int64_t part_end = std::min(begin / 384 * 384 + 384, rows);
        const int64_t end = std::min(begin + depth, part_end);
        sum = AddStep(
            order, sum, begin, end, [&](int64_t m) { return number(a, m, a_width, i); },
            [&](int64_t m) { return number(b, m, width, j); });
        begin = end;
      }
      product[i * width + j] = sum;
    }
  }
  return product;
}

// c = transpose(a) * b, where PairRows makes the pairs. An odd number of floats ends with zeros.
TEST_P(PairProduct, MultiplyTransposedFollowsItsDefinition) {
  for (const int64_t rows : {31, 50, 421}) {
    for (const int a_width : {8, 16, 24, 32}) {
      for (const int width : {8, 16, 24, 32}) {
        const Panels a_panels(a_width, /*merge_pairs=*/true), b_panels(width, /*merge_pairs=*/true);
        const std::vector<Bfloat16> a =
            RandomNumbers(rows * a_width, 3, GetParam().a, GetParam().spread);
        const std::vector<Bfloat16> b =
            RandomNumbers(rows * width, 4, GetParam().b, GetParam().spread);
        const auto expected = [&](Order order) {
          return Bits(TransposedProduct(order, a, a_width, b, width, rows));
        };
        const std::vector<uint32_t> in_pairs = expected(Order::kPairs);
        const std::vector<uint32_t> in_tiles = expected(Order::kTiles);
        for (const CpuIsa isa : Isas()) {
          UseCpuIsa(isa);
          if (width == 32 && ResultPanels(32).count() != 1) continue;
          std::vector<Bfloat16> paired_a(EvenRows<Bfloat16>(rows) * a_width),
              paired_b(EvenRows<Bfloat16>(rows) * width);
          PairRows(a_panels, a_panels.all(), a.data(), rows, 0, rows, paired_a.data());
          PairRows(b_panels, b_panels.all(), b.data(), rows, 0, rows, paired_b.data());
          std::vector<BfloatAsFloat> wide_a = Widened(a), wide_b = Widened(b);
          wide_a.resize(EvenRows<BfloatAsFloat>(rows) * a_width);
          wide_b.resize(EvenRows<BfloatAsFloat>(rows) * width);
          std::vector<float> actual(a_width * width), actual_wide(a_width * width);
          MultiplyTransposed(paired_a.data(), a_width, a_width, paired_b.data(), width, rows,
                             actual.data(), width, Store::kWrite);
          MultiplyTransposed(wide_a.data(), a_width, a_width, wide_b.data(), width, rows,
                             actual_wide.data(), width, Store::kWrite);
          EXPECT_EQ(Bits(actual), OrderOfPairs(isa) == Order::kTiles ? in_tiles : in_pairs)
              << CpuIsaName(isa) << ", " << rows << " rows, " << a_width << " x " << width;
          EXPECT_EQ(Bits(actual_wide), in_pairs) << "floats with " << CpuIsaName(isa) << ", "
                                                 << rows << " rows, " << a_width << " x " << width;
        }
      }
    }
  }
}

// The operands and the result of both products end before a page that is not there. Tiles read
// whole rows by their own instructions, which no sanitizer sees.
TEST_P(PairProduct, ReadsAndWritesNothingElse) {
  for (const CpuIsa isa : Isas()) {
    UseCpuIsa(isa);
    for (const int64_t length : {1, 21, 48, 75}) {
      for (const int width : {8, 16, 24, 32}) {
        if (width == 32 && ResultPanels(32).count() != 1) continue;
        const Panels inner = InnerPanels<Bfloat16>(length);
        for (const int64_t rows : {1, 21, 48}) {
          BeforeAPage<Bfloat16> a(std::vector<Bfloat16>(rows * inner.padded()));
          BeforeAPage<Bfloat16> b(std::vector<Bfloat16>(EvenRows<Bfloat16>(length) * width));
          BeforeAPage<float> c(std::vector<float>(rows * width, 1.0f));
          MultiplyPanel(inner, inner.all(), a.data(), rows, 0, rows, b.data(), width, c.data());
          EXPECT_EQ(c.data()[rows * width - 1], 0.0f);
        }
        for (const int a_width : {8, 16, 24, 32}) {
          const int64_t even = EvenRows<Bfloat16>(length);
          BeforeAPage<Bfloat16> a(std::vector<Bfloat16>(even * a_width));
          BeforeAPage<Bfloat16> b(std::vector<Bfloat16>(even * width));
          BeforeAPage<float> c(std::vector<float>(a_width * width, 1.0f));
          MultiplyTransposed(a.data(), a_width, a_width, b.data(), width, length, c.data(), width,
                             Store::kWrite);
          EXPECT_EQ(c.data()[a_width * width - 1], 0.0f);
        }
      }
    }
  }
}

// Numbers near 1; sums that are denormal, or nearly so; operands that are denormal; sums that
// overflow; and all exponents.
INSTANTIATE_TEST_SUITE_P(Numbers, PairProduct,
                         testing::Values(Exponents{0, 0, 4}, Exponents{-63, -64, 3},
                                         Exponents{-126, 100, 1}, Exponents{64, 63, 3},
                                         Exponents{0, 0, 127}));

}  // namespace
}  // namespace pushpull
