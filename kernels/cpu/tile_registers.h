// The tile registers of Intel's AMX: a product of bfloat16 multiplies matrices in them
// (kernels/cpu/tile_product.h). A thread has to say how large its matrices are before it uses them,
// and should give them back when it is done. Other processors have none.
#ifndef PUSHPULL_KERNELS_CPU_TILE_REGISTERS_H_
#define PUSHPULL_KERNELS_CPU_TILE_REGISTERS_H_

namespace pushpull {

// The rows of a tile register and the pairs of bfloat16 numbers, or the floats, of one of its rows.
inline constexpr int kTileRows = 16;
inline constexpr int kTilePairs = 16;

// A product of up to 2 x 2 tiles: c[rows, columns] = a[rows, pairs] * b[pairs, columns], where an
// entry of a or b is a pair. The registers are 0 to 3 for c, row by row, 4 and 5 for a, which are
// one below the other, and 6 and 7 for b, which are side by side.
struct TileSizes {
  int rows;     // 1 to 32; from 17 on there are two rows of tiles, the first of which has 16
  int columns;  // 1 to 32; from 17 on there are two columns of tiles, the first of which has 16
  int pairs;    // 1 to 16
};

// Makes the calling thread's tile registers as large as the product needs, unless they are already.
// What they hold is lost then. Only for a CPU with CpuIsa::kAmxBf16.
void ConfigureTiles(const TileSizes& sizes);

// Gives the calling thread's tile registers back, if it has configured any. While they are in use,
// a waiting core cannot sleep deeply, and the system saves 8 KiB more when it switches threads.
void ReleaseTiles();

// Gives the calling thread's tile registers back when it is destroyed.
class TileUse {
 public:
  TileUse() = default;
  ~TileUse() { ReleaseTiles(); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_TILE_REGISTERS_H_
