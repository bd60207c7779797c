// The kernels for any processor.
#define TT_WIDTH 4
#define TT_SET generic
#include "kernels/set.h"
