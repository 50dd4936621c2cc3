// Tested by tests/kernels/cpu/gemm_test.cc.
#include "kernels/cpu/tile_registers.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace pushpull {

#if defined(__x86_64__)

namespace {

// The operand of the instruction LDTILECFG (Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 1, "Tile Configuration"). All 16 places are there, for eight registers.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t first_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void Set(int tile, int tile_rows, int entries) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(4 * entries);  // a pair has as many bytes as a float
  }
};
static_assert(sizeof(TileConfiguration) == 64);

// The numbers of rows or columns of two tiles beside or below each other. A second tile that is not
// needed may have any size. It gets the full one, so that fewer products need another
// configuration.
struct Halves {
  explicit Halves(int count, int most)
      : first(std::min(count, most)), second(count > most ? count - most : most) {}
  int first, second;
};

constinit thread_local TileSizes configured = {0, 0, 0};

}  // namespace

void ConfigureTiles(const TileSizes& sizes) {
  const Halves rows(sizes.rows, kTileRows), columns(sizes.columns, kTilePairs);
  const Halves old_rows(configured.rows, kTileRows), old_columns(configured.columns, kTilePairs);
  const auto holds = [](const Halves& old, const Halves& wanted, int count, int most) {
    return old.first == wanted.first && (count <= most || old.second == wanted.second);
  };
  if (configured.pairs == sizes.pairs && holds(old_rows, rows, sizes.rows, kTileRows) &&
      holds(old_columns, columns, sizes.columns, kTilePairs)) {
    return;
  }
  TileConfiguration configuration;
  configuration.Set(0, rows.first, columns.first);
  configuration.Set(1, rows.first, columns.second);
  configuration.Set(2, rows.second, columns.first);
  configuration.Set(3, rows.second, columns.second);
  configuration.Set(4, rows.first, sizes.pairs);
  configuration.Set(5, rows.second, sizes.pairs);
  configuration.Set(6, sizes.pairs, columns.first);
  configuration.Set(7, sizes.pairs, columns.second);
  asm volatile("ldtilecfg %0" : : "m"(configuration));
  configured = sizes;
}

void ReleaseTiles() {
  if (configured.pairs == 0) return;
  asm volatile("tilerelease");
  configured = {0, 0, 0};
}

#else

void ConfigureTiles(const TileSizes&) { std::abort(); }
void ReleaseTiles() {}

#endif

}  // namespace pushpull
