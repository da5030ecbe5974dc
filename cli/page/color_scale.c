/* color_scale.c - see color_scale.h. Colors between the samples are interpolated linearly. */
#include "page/color_scale.h"

#include <math.h>

const color color_stops[COLOR_STOPS] = {
    {0x44, 0x01, 0x54}, {0x48, 0x14, 0x67}, {0x48, 0x25, 0x76}, {0x45, 0x37, 0x81}, {0x40, 0x46, 0x88},
    {0x39, 0x55, 0x8c}, {0x33, 0x63, 0x8d}, {0x2d, 0x71, 0x8e}, {0x28, 0x7d, 0x8e}, {0x23, 0x8a, 0x8d},
    {0x1f, 0x96, 0x8b}, {0x20, 0xa3, 0x86}, {0x29, 0xaf, 0x7f}, {0x3d, 0xbc, 0x74}, {0x56, 0xc6, 0x67},
    {0x75, 0xd0, 0x54}, {0x95, 0xd8, 0x40}, {0xba, 0xde, 0x28}, {0xdd, 0xe3, 0x18}, {0xfd, 0xe7, 0x25},
};

double color_position(color_scale scale, double weight)
{
    if (!(weight > 0)) return 0; /* also true for NaN */
    if (weight >= 1) return 1;
    return scale == COLOR_LINEAR ? weight : sqrt(weight);
}

static unsigned char between(unsigned char a, unsigned char b, double t)
{
    return (unsigned char)(a + (b - a) * t + 0.5);
}

color color_of_weight(color_scale scale, float weight)
{
    double at = color_position(scale, (double)weight) * (COLOR_STOPS - 1);
    int i = at < COLOR_STOPS - 2 ? (int)at : COLOR_STOPS - 2;
    color a = color_stops[i], b = color_stops[i + 1];
    double t = at - i;
    return (color){between(a.r, b.r, t), between(a.g, b.g, t), between(a.b, b.b, t)};
}
