// The format of the file of decoded images that image_cache.h maintains.
//
// clang-format off
//   header    16 bytes
//   pixels    one run of bytes per example, in any order, without gaps
//   table     num_examples entries of 40 bytes, in the order of the data set
//   boxes     num_boxes entries of 28 bytes; the boxes of one example are adjacent
//   footer    88 bytes at the end of the file
// clang-format on
//
// All numbers are little-endian and there is no padding. Sizes and checksums are in a footer
// because they are known only after the last image has been decoded, and the file is written by
// appending.
//
// Opening a file verifies both magics and versions, the checksum of header and footer, the file
// size against the footer, the checksum of table and boxes, and that every entry points into the
// file. This takes time proportional to the table, not to the pixels. Reading an image verifies the
// checksum of its pixels.
//
// A file is written under a temporary name, synced and then renamed, so a file under its final name
// is complete unless the disk damaged it. It is never modified. A new file replaces it by another
// rename; processes that have the old file open continue to read the old one.
//
// The key identifies the data set that the file was made from (see image_cache.h). A reader refuses
// files of other versions: they are rebuilt, not converted.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_CACHE_FORMAT_H_
#define PUSHPULL_WORKER_DATA_IMAGE_CACHE_FORMAT_H_

#include <cstddef>
#include <cstdint>

namespace pushpull {

inline constexpr char kImageCacheMagic[8] = {'P', 'P', 'I', 'M', 'A', 'G', 'E', 'S'};
// Version 1 had no group boxes. Version 2 lacks boxes that reach outside the image, which are
// clipped since version 3.
inline constexpr uint32_t kImageCacheVersion = 3;
inline constexpr size_t kImageCacheKeyBytes = 32;
// Largest height and width of a stored image; keeps height * width * channels far from overflow.
inline constexpr uint32_t kImageCacheMaxSide = 1u << 24;

struct ImageCacheHeader {
  char magic[8];
  uint32_t version;
  uint32_t reserved;  // 0
};

struct ImageCacheEntry {
  uint64_t pixels_offset;  // from the beginning of the file
  uint64_t first_box;      // index of the first box; num_boxes follow
  uint32_t num_boxes;
  uint32_t height;
  uint32_t width;
  uint32_t channels;  // 1 or 3
  uint32_t label;
  uint32_t pixels_crc;  // CRC-32C of the pixels, height * width * channels bytes
};

// Edges are shares of the image's sides, as in Box.
struct ImageCacheBox {
  float ymin;
  float xmin;
  float ymax;
  float xmax;
  float weight;
  uint32_t label;
  uint32_t flags;  // the bits below
};
inline constexpr uint32_t kImageCacheBoxDifficult = 1;
inline constexpr uint32_t kImageCacheBoxIsCrowd = 2;
inline constexpr uint32_t kImageCacheBoxIsGroupOf = 4;

struct ImageCacheFooter {
  uint64_t num_examples;
  uint64_t num_boxes;
  uint64_t table_offset;          // where the pixels end
  char key[kImageCacheKeyBytes];  // hex digits
  uint32_t num_classes;
  uint32_t max_side;  // 0: images are stored at full size
  uint32_t version;
  uint32_t table_crc;  // CRC-32C of the table followed by the boxes
  char magic[8];
  uint32_t reserved;    // 0
  uint32_t footer_crc;  // CRC-32C of the header followed by the footer up to this field
};

static_assert(sizeof(ImageCacheHeader) == 16);
static_assert(sizeof(ImageCacheEntry) == 40);
static_assert(sizeof(ImageCacheBox) == 28);
static_assert(sizeof(ImageCacheFooter) == 88);
static_assert(offsetof(ImageCacheFooter, footer_crc) == 84);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_CACHE_FORMAT_H_
